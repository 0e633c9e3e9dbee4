//go:build k134

package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
	"k8s.io/utils/clock"
)

type manager = dra.Manager

//go:linkname reconcileLoop k8s.io/kubernetes/pkg/kubelet/cm/dra.(*Manager).reconcileLoop
func reconcileLoop(m *manager, ctx context.Context)

func newManager(client kubernetes.Interface, dir string) (*manager, error) {
	return dra.NewManager(klog.Background(), client, dir)
}

func (k *kubelet) start(ctx context.Context) error {
	active := func() []*v1.Pod { return k.active }
	if err := k.manager.Start(ctx, active, getNode, k.sources); err != nil {
		return err
	}
	k.handler = handler{k.manager.GetWatcherHandler()}
	plugins := inside(k.manager, "draPlugins")
	setValue(inside(plugins.Interface(), "pendingWipes", "clock"), clock.WithDelayedExecution(k.node.clock))
	k.countStreams(inside(plugins.Interface(), "streamHandler"))
	return nil
}

func (k *kubelet) stop() {
	k.handler.of.(interface{ Stop() }).Stop()
	k.cancel()
}

// plugin returns the kubelet's record of an instance, which must be registered, and unlocks it.
func (k *kubelet) plugin(d *driver) (plugin any, unlock func()) {
	plugins := inside(k.manager, "draPlugins").Interface()
	mutex := inside(plugins, "mutex").Addr().Interface().(*sync.RWMutex)
	mutex.RLock()
	list := inside(plugins, "store").MapIndex(reflect.ValueOf(d.spec.Driver))
	if list.IsValid() {
		for number := range list.Len() {
			each := list.Index(number).Interface()
			if inside(each, "DRAPlugin", "endpoint").String() == d.socket {
				return each, mutex.RUnlock
			}
		}
	}
	mutex.RUnlock()
	return nil, func() {}
}

// connected returns the kubelet's connection to an instance, and if it counts as connected.
func (k *kubelet) connected(d *driver) (*grpc.ClientConn, bool) {
	plugin, unlock := k.plugin(d)
	defer unlock()
	if plugin == nil {
		return nil, false
	}
	conn := inside(plugin, "DRAPlugin", "conn").Interface().(*grpc.ClientConn)
	return conn, inside(plugin, "connected").Bool()
}

func (k *kubelet) limit(d *driver, limit time.Duration) {
	plugin, unlock := k.plugin(d)
	defer unlock()
	if plugin != nil {
		inside(plugin, "DRAPlugin", "clientCallTimeout").SetInt(int64(limit))
	}
}

// wipesAtOnce returns how many wipes a deregistration leads to.
func (k *kubelet) wipesAtOnce(*driver) int { return 0 }

// updates returns the uids of the pods on the update channel.
func (k *kubelet) updates() []string {
	found := []string{}
	for {
		select {
		case update := <-k.manager.Updates():
			found = append(found, update.PodUIDs...)
		default:
			slices.Sort(found)
			return found
		}
	}
}

// ageHealth makes all health reports older.
func (k *kubelet) ageHealth(amount time.Duration) {
	for _, driver := range *inside(k.manager, "healthInfoCache", "HealthInfo").Interface().(*state.DevicesHealthMap) {
		for name, device := range driver.Devices {
			device.LastUpdated = device.LastUpdated.Add(-amount)
			driver.Devices[name] = device
		}
	}
}

// status has the health of a pod's devices, if the kubelet asks the manager for it.
func (k *kubelet) status(pod *v1.Pod) object {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ResourceHealthStatus) {
		return object{}
	}
	status := &v1.PodStatus{}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: container.Name})
	}
	updateStatus(k.manager, pod, status)
	found := object{}
	for _, container := range status.ContainerStatuses {
		resources := []object{}
		for _, each := range container.AllocatedResourcesStatus {
			resources = append(resources, object{"name": each.Name, "resources": healthOf(each.Resources)})
		}
		slices.SortFunc(resources, func(a, b object) int {
			return strings.Compare(fmt.Sprint(a["name"]), fmt.Sprint(b["name"]))
		})
		if len(resources) > 0 {
			found[container.Name] = resources
		}
	}
	return found
}
