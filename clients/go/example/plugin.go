// Package example is a small device plugin, tested with a mock kubelet.
package example

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Resource is the resource that the plugin serves.
const Resource = "vendor.com/gpu"

// Plugin serves devices from its directory until its context ends.
type Plugin struct {
	Dir string
	// LosesChanges plants a bug: a ListAndWatch handler keeps waiting for changes after its
	// stream has ended, and takes them from the handler of the open stream.
	LosesChanges bool

	mu      sync.Mutex
	health  map[string]string
	changes chan struct{}

	// Used only by Run: the current server, and the kubelet.sock where it has registered.
	server     *grpc.Server
	socket     string
	generation int
	registered os.FileInfo
	streams    atomic.Int32  // open ListAndWatch streams
	ended      chan struct{} // receives when the last of them has ended
}

// New returns a plugin with healthy devices gpu-0, gpu-1 and so on.
func New(dir string, count int) *Plugin {
	p := &Plugin{Dir: dir, health: map[string]string{}, changes: make(chan struct{}),
		ended: make(chan struct{}, 1)}
	for i := 0; i < count; i++ {
		p.health[fmt.Sprintf("gpu-%d", i)] = pluginapi.Healthy
	}
	return p
}

// SetHealth changes the health of a device and notifies the kubelet.
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

// WatchHealth reads the health of the devices until ctx ends: a device is broken while dir has a
// file with its name.
func (p *Plugin) WatchHealth(ctx context.Context, dir string) {
	for ticker := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; {
		devices, _ := p.list()
		for _, device := range devices {
			health := pluginapi.Healthy
			if _, err := os.Stat(filepath.Join(dir, device.ID)); err == nil {
				health = pluginapi.Unhealthy
			}
			if health != device.Health {
				p.SetHealth(device.ID, health)
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
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

// ListAndWatch sends the devices at once and after each change.
func (p *Plugin) ListAndWatch(
	_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer,
) error {
	ended := stream.Context().Done()
	if p.LosesChanges {
		ended = nil
	}
	p.streams.Add(1)
	defer func() {
		if p.streams.Add(-1) == 0 {
			select {
			case p.ended <- struct{}{}:
			default:
			}
		}
	}()
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

// Allocate returns an environment variable for each device.
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

// GetDevicePluginOptions returns that the optional RPCs are not implemented.
func (p *Plugin) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// GetPreferredAllocation is not implemented.
func (p *Plugin) GetPreferredAllocation(
	context.Context, *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not implemented")
}

// PreStartContainer is not implemented.
func (p *Plugin) PreStartContainer(
	context.Context, *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not implemented")
}

// Run serves and registers the plugin until the context ends. It does both again whenever the
// kubelet creates a new kubelet.sock, removes the plugin's socket or ends its stream.
func (p *Plugin) Run(ctx context.Context) error {
	if info, err := os.Stat(p.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory", p.Dir)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(p.Dir); err != nil {
		return err
	}
	defer p.stop()
	kubelet := filepath.Join(p.Dir, "kubelet.sock")
	again := time.NewTimer(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			ours := event.Name == p.socket && event.Has(fsnotify.Remove)
			theirs := event.Name == kubelet && event.Has(fsnotify.Create) && !p.knows(kubelet)
			if !ours && !theirs {
				continue
			}
		case <-p.ended:
			// A kubelet that has stopped will create a new socket, which is another event.
			if !p.knows(kubelet) || p.streams.Load() > 0 {
				continue
			}
		case <-again.C:
		}
		if _, err := os.Stat(kubelet); err != nil {
			continue
		}
		if err := p.comeUp(ctx, kubelet); err != nil && ctx.Err() == nil {
			log.Printf("cannot register: %v", err)
			again.Reset(time.Second)
		} else {
			again.Stop() // no retry of an earlier failure
		}
	}
}

// knows returns true if this is the kubelet.sock where the plugin has registered. The inode alone
// is not enough: the file system can reuse it at once.
func (p *Plugin) knows(kubelet string) bool {
	now, err := os.Stat(kubelet)
	return err == nil && p.registered != nil && os.SameFile(now, p.registered) &&
		now.ModTime().Equal(p.registered.ModTime())
}

// comeUp serves on a new socket and registers it. Each socket has another name, so that no
// instance removes the socket of another one, or of a later server of this one.
func (p *Plugin) comeUp(ctx context.Context, kubelet string) error {
	p.stop()
	p.generation++
	name := fmt.Sprintf("example-%d-%d.sock", os.Getpid(), p.generation)
	path := filepath.Join(p.Dir, name)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	p.server, p.socket = grpc.NewServer(), path
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go p.server.Serve(listener)
	if p.registered, err = os.Stat(kubelet); err != nil {
		return err
	}
	return p.register(ctx, kubelet, name)
}

// stop ends the server; its listener removes its socket.
func (p *Plugin) stop() {
	if p.server == nil {
		return
	}
	p.socket = ""
	if p.LosesChanges {
		go p.server.Stop() // it waits for handlers that do not end
	} else {
		p.server.Stop()
	}
	select { // drop the notification that the old server's streams have ended
	case <-p.ended:
	default:
	}
}

func (p *Plugin) register(ctx context.Context, kubelet, endpoint string) error {
	conn, err := grpc.NewClient("unix:"+kubelet,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: Resource,
	})
	return err
}
