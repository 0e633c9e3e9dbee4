// Package example is a small device plugin, tested with a mock kubelet.
package example

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Resource is what the plugin serves.
const Resource = "vendor.com/gpu"

const socket = "example.sock"

// Plugin serves devices from its directory until its context ends.
type Plugin struct {
	Dir string
	// LosesChanges plants a bug: a list handler goes on waiting for changes after its stream
	// has ended, and takes them away from the live one.
	LosesChanges bool

	mu      sync.Mutex
	health  map[string]string
	changes chan struct{}
}

// New makes a plugin with healthy devices gpu-0, gpu-1 and so on.
func New(dir string, count int) *Plugin {
	p := &Plugin{Dir: dir, health: map[string]string{}, changes: make(chan struct{})}
	for i := 0; i < count; i++ {
		p.health[fmt.Sprintf("gpu-%d", i)] = pluginapi.Healthy
	}
	return p
}

// SetHealth changes a device and tells the kubelet.
func (p *Plugin) SetHealth(id, health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health[id] = health
	if p.LosesChanges {
		go func(changes chan struct{}) { changes <- struct{}{} }(p.changes)
		return
	}
	close(p.changes)
	p.changes = make(chan struct{})
}

func (p *Plugin) list() ([]*pluginapi.Device, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	devices := []*pluginapi.Device{}
	for id, health := range p.health {
		devices = append(devices, &pluginapi.Device{ID: id, Health: health})
	}
	return devices, p.changes
}

// ListAndWatch sends the devices, and again with each change.
func (p *Plugin) ListAndWatch(
	_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer,
) error {
	ended := stream.Context().Done()
	if p.LosesChanges {
		ended = nil
	}
	for {
		devices, changes := p.list()
		err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices})
		if err != nil && !p.LosesChanges {
			return err
		}
		select {
		case <-changes:
		case <-ended:
			return nil
		}
	}
}

// Allocate names the devices in a variable.
func (p *Plugin) Allocate(
	_ context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{}}
		for i, id := range container.DevicesIDs {
			p.mu.Lock()
			_, known := p.health[id]
			p.mu.Unlock()
			if !known {
				return nil, status.Errorf(codes.NotFound, "no device %s", id)
			}
			answer.Envs[fmt.Sprintf("GPU_%d", i)] = id
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// GetDevicePluginOptions offers nothing more.
func (p *Plugin) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// GetPreferredAllocation is not offered.
func (p *Plugin) GetPreferredAllocation(
	context.Context, *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not offered")
}

// PreStartContainer is not asked for.
func (p *Plugin) PreStartContainer(
	context.Context, *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not asked for")
}

// Run serves and registers, and does both again whenever the kubelet makes a new
// kubelet.sock, until the context ends.
func (p *Plugin) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(p.Dir); err != nil {
		return err
	}
	kubelet := filepath.Join(p.Dir, "kubelet.sock")
	again := time.NewTimer(0)
	var server *grpc.Server
	defer func() {
		if server != nil {
			server.Stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if event.Name != kubelet || !event.Has(fsnotify.Create) {
				continue
			}
		case <-again.C:
		}
		if server != nil {
			go server.Stop()
		}
		if server, err = p.serve(); err == nil {
			err = p.register(ctx, kubelet)
		}
		if err != nil {
			again.Reset(time.Second)
		}
	}
}

func (p *Plugin) serve() (*grpc.Server, error) {
	path := filepath.Join(p.Dir, socket)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// The next server has the same path: this one must not remove it.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	return server, nil
}

func (p *Plugin) register(ctx context.Context, kubelet string) error {
	conn, err := grpc.NewClient("unix:"+kubelet,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: Resource,
	})
	return err
}
