//go:build !k134

package main

import (
	"context"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	draplugin "k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

type manager = dra.ManagerImpl

//go:linkname reconcileLoop k8s.io/kubernetes/pkg/kubelet/cm/dra.(*ManagerImpl).reconcileLoop
func reconcileLoop(m *manager, ctx context.Context)

// registered has all plugins of the process: a restart must empty it.
//
//go:linkname registered k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin.draPlugins
var registered *struct {
	sync.RWMutex
	store map[string]*draplugin.Plugin
}

func newManager(client kubernetes.Interface, dir string) (*manager, error) {
	return dra.NewManagerImpl(client, dir, nodeName)
}

func (k *kubelet) start(ctx context.Context) error {
	active := func() []*v1.Pod { return k.active }
	if err := k.manager.Start(ctx, active, getNode, k.sources); err != nil {
		return err
	}
	k.handler = handler{k.manager.GetWatcherHandler()}
	return nil
}

func (k *kubelet) stop() {
	k.cancel()
	registered.Lock()
	defer registered.Unlock()
	for _, plugin := range registered.store {
		if conn := connection(plugin); conn != nil {
			_ = conn.Close()
		}
	}
	registered.store = nil
}

func (k *kubelet) plugin(d *driver) *draplugin.Plugin {
	registered.RLock()
	defer registered.RUnlock()
	plugin := registered.store[d.spec.Driver]
	if plugin == nil || inside(plugin, "endpoint").String() != d.socket {
		return nil
	}
	return plugin
}

func connection(plugin *draplugin.Plugin) *grpc.ClientConn {
	return inside(plugin, "conn").Interface().(*grpc.ClientConn)
}

// connected returns the connection to an instance, nil before the first call, and its state.
func (k *kubelet) connected(d *driver) (*grpc.ClientConn, bool) {
	plugin := k.plugin(d)
	if plugin == nil {
		return nil, false
	}
	conn := connection(plugin)
	if conn == nil {
		return nil, false
	}
	conn.Connect()
	return conn, conn.GetState() == connectivity.Ready
}

func (k *kubelet) limit(d *driver, limit time.Duration) {
	if plugin := k.plugin(d); plugin != nil {
		inside(plugin, "clientCallTimeout").SetInt(int64(limit))
	}
}

// wipesAtOnce returns how many wipes a deregistration leads to: it takes the driver's name only.
func (k *kubelet) wipesAtOnce(d *driver) int {
	registered.RLock()
	defer registered.RUnlock()
	if registered.store[d.spec.Driver] == nil {
		return 0
	}
	return 1
}

func (k *kubelet) updates() []string       { return nil }
func (k *kubelet) ageHealth(time.Duration) {}
func (k *kubelet) status(*v1.Pod) object   { return object{} }
func (k *kubelet) health(*driver) error    { return nil }
func shareOf(state.Device) *string         { return nil }
