package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// callLog has the calls of all plugins of a run.
type callLog struct {
	mutex sync.Mutex
	calls []Call
}

func (l *callLog) add(call Call) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.calls = append(l.calls, call)
}

func (l *callLog) take() []Call {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// served is a plugin on a socket in the plugin directory.
type served struct {
	unimplemented
	resource string
	socket   string
	spec     *Plugin
	node     *node
	lists    chan []*pluginapi.Device
	done     chan struct{}
	gone     atomic.Bool
	grpc     *grpc.Server
	// command is the process of a plugin that is a program; the others are served here.
	command *exec.Cmd
	// own are the sockets that the program has created.
	own []string
}

func serve(dir, resource, socket string, spec *Plugin, n *node) (*served, error) {
	path := filepath.Join(dir, socket)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Stop must not remove the socket, which can belong to a newer plugin.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	p := &served{
		resource: resource, socket: socket, spec: spec, node: n,
		lists: make(chan []*pluginapi.Device, 16), done: make(chan struct{}), grpc: grpc.NewServer(),
	}
	pluginapi.RegisterDevicePluginServer(p.grpc, p)
	go p.grpc.Serve(listener)
	return p, nil
}

// register registers the plugin and returns the error, empty on success.
func (p *served) register(kubelet, version string) Reply {
	if version == "" {
		version = pluginapi.Version
	}
	// Dial, because the oldest release has no NewClient.
	conn, err := grpc.Dial("unix:"+kubelet,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Reply{"dial", err.Error()}
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(context.Background(),
		&pluginapi.RegisterRequest{Version: version, Endpoint: p.socket, ResourceName: p.resource})
	if err != nil {
		return Reply{status.Code(err).String(), status.Convert(err).Message()}
	}
	return Reply{}
}

// isGone is true if the kubelet has ended the ListAndWatch stream.
func (p *served) isGone() bool { return p.gone.Load() }

func (p *served) stop() {
	if p.command != nil {
		p.kill()
		return
	}
	close(p.done)
	p.grpc.Stop()
}

func (p *served) send(devices []Device) {
	list := []*pluginapi.Device{}
	for _, d := range devices {
		device := &pluginapi.Device{ID: d.ID, Health: d.Health}
		if d.NUMA != nil {
			device.Topology = &pluginapi.TopologyInfo{}
			for _, node := range d.NUMA {
				device.Topology.Nodes = append(device.Topology.Nodes, &pluginapi.NUMANode{ID: node})
			}
		}
		list = append(list, device)
	}
	p.lists <- list
}

func (p *served) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{
		PreStartRequired:                p.spec.PreStart,
		GetPreferredAllocationAvailable: p.spec.Preferred != "",
	}, nil
}

func (p *served) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	defer p.gone.Store(true)
	for {
		select {
		case <-p.done:
			return nil
		case <-stream.Context().Done():
			return nil
		case list := <-p.lists:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

func (p *served) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	for _, container := range request.ContainerRequests {
		ids := slices.Clone(allocateIDs(container))
		slices.Sort(ids)
		p.node.log.add(Call{Method: "Allocate", Resource: p.resource, Plugin: p.socket, Devices: ids})
	}
	if meanwhile := p.node.meanwhile; meanwhile != nil {
		p.node.meanwhile = nil
		meanwhile()
	}
	if p.spec.AllocateError != "" {
		return nil, status.Error(codes.Unknown, p.spec.AllocateError)
	}
	response := &pluginapi.AllocateResponse{}
	if p.spec.EmptyReply {
		return response, nil
	}
	for range request.ContainerRequests {
		one := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": "1"}}
		if p.spec.Response != nil {
			one = &pluginapi.ContainerAllocateResponse{}
			if err := unmarshal(p.spec.Response, one); err != nil {
				return nil, err
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, one)
	}
	return response, nil
}

func (p *served) GetPreferredAllocation(_ context.Context, request *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		available := slices.Clone(container.AvailableDeviceIDs)
		must := slices.Clone(container.MustIncludeDeviceIDs)
		slices.Sort(available)
		slices.Sort(must)
		size := container.AllocationSize
		p.node.log.add(Call{
			Method: "GetPreferredAllocation", Resource: p.resource, Plugin: p.socket,
			Available: available, MustInclude: must, Size: &size,
		})
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{
				DeviceIDs: prefer(p.spec, available, must, int(size)),
			})
	}
	if p.spec.Preferred == "error" {
		return nil, status.Error(codes.Unknown, "no preference for you")
	}
	return response, nil
}

func (p *served) PreStartContainer(_ context.Context, request *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	ids := slices.Clone(preStartIDs(request))
	slices.Sort(ids)
	p.node.log.add(Call{Method: "PreStartContainer", Resource: p.resource, Plugin: p.socket, Devices: ids})
	if p.spec.PreStartError != "" {
		return nil, status.Error(codes.Unknown, p.spec.PreStartError)
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// prefer selects devices by the policies of the vectors; both lists are sorted.
func prefer(spec *Plugin, available, must []string, size int) []string {
	policy := spec.Preferred
	if policy == "garbage" {
		return []string{"no-such-device", "another"}
	}
	if policy == "listed" {
		// Offered or not: the last devices of the first list.
		available = nil
		for _, device := range spec.Devices {
			available = append(available, device.ID)
		}
		slices.Sort(available)
		available = slices.Compact(available)
		policy = "reverse"
	}
	rest := []string{}
	for _, id := range available {
		if !slices.Contains(must, id) {
			rest = append(rest, id)
		}
	}
	if policy == "reverse" {
		slices.Reverse(rest)
	}
	chosen := append(slices.Clone(must), rest...)
	chosen = chosen[:min(len(chosen), max(size, len(must)))]
	if policy == "short" && len(chosen) > len(must) {
		chosen = chosen[:len(chosen)-1]
	}
	return chosen
}
