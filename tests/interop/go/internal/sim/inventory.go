// Package sim is a device plugin's service over virtual devices.
package sim

import (
	"fmt"
	"sort"
	"sync"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Inventory is the plugin's device list; every change wakes all waiters on changed.
type Inventory struct {
	mu      sync.Mutex
	devices map[string]*pluginapi.Device
	wake    chan struct{}
}

// NewInventory creates count healthy devices named <prefix>-<index>, on the nodes in turn.
func NewInventory(prefix string, count int, nodes []int64) *Inventory {
	inv := &Inventory{devices: map[string]*pluginapi.Device{}, wake: make(chan struct{})}
	for i := 0; i < count; i++ {
		device := &pluginapi.Device{ID: fmt.Sprintf("%s-%d", prefix, i), Health: pluginapi.Healthy}
		if len(nodes) > 0 {
			node := &pluginapi.NUMANode{ID: nodes[i%len(nodes)]}
			device.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{node}}
		}
		inv.devices[device.ID] = device
	}
	return inv
}

// snapshot returns the list in ID order and a channel that closes at the next change. The
// devices are copies: a message that gRPC is sending never changes.
func (inv *Inventory) snapshot() ([]*pluginapi.Device, <-chan struct{}) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	list := make([]*pluginapi.Device, 0, len(inv.devices))
	for _, d := range inv.devices {
		list = append(list, &pluginapi.Device{ID: d.ID, Health: d.Health, Topology: d.Topology})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list, inv.wake
}

// List returns the devices in ID order.
func (inv *Inventory) List() []*pluginapi.Device {
	list, _ := inv.snapshot()
	return list
}

// SetHealth changes or adds a device; health "gone" removes it.
func (inv *Inventory) SetHealth(id, health string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	device, known := inv.devices[id]
	switch {
	case health == "gone":
		delete(inv.devices, id)
	case known:
		device.Health = health
	default:
		inv.devices[id] = &pluginapi.Device{ID: id, Health: health}
	}
	close(inv.wake)
	inv.wake = make(chan struct{})
}

func (inv *Inventory) has(id string) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	_, known := inv.devices[id]
	return known
}
