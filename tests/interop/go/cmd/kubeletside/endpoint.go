package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/lines"
)

// callDeadline limits every call to a plugin, so that a test fails instead of hanging.
const callDeadline = 10 * time.Second

// endpoint is one registered plugin.
type endpoint struct {
	resource string
	conn     *grpc.ClientConn
	client   pluginapi.DevicePluginClient
}

// Register does what the kubelet does before it replies: it checks the version, dials the
// plugin and gets its options. The list stream is opened in parallel with the reply.
func (k *kubelet) Register(
	_ context.Context, request *pluginapi.RegisterRequest,
) (*pluginapi.Empty, error) {
	lines.Emit("register", lines.Fields{
		"version": request.Version, "endpoint": request.Endpoint,
		"resource": request.ResourceName, "options": readOptions(request.Options),
	})
	if request.Version != pluginapi.Version {
		return nil, fmt.Errorf("unsupported version %q", request.Version)
	}
	conn, err := api.Dial(filepath.Join(k.dir, request.Endpoint))
	if err != nil {
		return nil, err
	}
	e := &endpoint{request.ResourceName, conn, pluginapi.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	options, err := e.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("no options from %s: %w", request.Endpoint, err)
	}
	lines.Emit("options", lines.Fields{"resource": e.resource, "options": readOptions(options)})
	k.adopt(e)
	return &pluginapi.Empty{}, nil
}

// adopt makes e the plugin of its resource and reads its lists.
func (k *kubelet) adopt(e *endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, known := k.plugins[e.resource]; known {
		old.conn.Close()
	}
	k.plugins[e.resource] = e
	k.streams.Add(1)
	go func() {
		defer k.streams.Done()
		err := e.follow()
		lines.Emit("list-ended", lines.Fields{"resource": e.resource, "error": err.Error()})
	}()
}

// follow reports every list until the stream ends, and returns the reason.
func (e *endpoint) follow() error {
	stream, err := e.client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		devices := []lines.Fields{}
		for _, d := range response.Devices {
			devices = append(devices, lines.Fields{
				"id": d.ID, "health": d.Health, "numa": api.NUMANodes(d.Topology),
			})
		}
		lines.Emit("list", lines.Fields{"resource": e.resource, "devices": devices})
	}
}

func (e *endpoint) allocate(ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	response, err := e.client.Allocate(ctx, api.NewAllocateRequest(ids))
	if err != nil {
		e.rejected("Allocate", err)
		return
	}
	containers := []api.Allocation{}
	for _, container := range response.ContainerResponses {
		allocation, err := api.ReadAllocation(container)
		if err != nil {
			e.rejected("Allocate", err)
			return
		}
		containers = append(containers, allocation)
	}
	lines.Emit("allocated", lines.Fields{"resource": e.resource, "containers": containers})
}

func (e *endpoint) preStart(ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	if _, err := e.client.PreStartContainer(ctx, api.NewPreStartRequest(ids)); err != nil {
		e.rejected("PreStartContainer", err)
		return
	}
	lines.Emit("prestarted", lines.Fields{"resource": e.resource})
}

func (e *endpoint) prefer(available, must []string, size int32) {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	response, err := e.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: size,
		}},
	})
	if err != nil {
		e.rejected("GetPreferredAllocation", err)
		return
	}
	containers := [][]string{}
	for _, container := range response.ContainerResponses {
		containers = append(containers, append([]string{}, container.DeviceIDs...))
	}
	lines.Emit("preferred", lines.Fields{"resource": e.resource, "containers": containers})
}

func (e *endpoint) rejected(method string, err error) {
	s := status.Convert(err)
	lines.Emit("rpc-error", lines.Fields{
		"resource": e.resource, "method": method,
		"code": s.Code().String(), "message": s.Message(),
	})
}

func readOptions(options *pluginapi.DevicePluginOptions) lines.Fields {
	return lines.Fields{
		"pre_start_required":                 options.GetPreStartRequired(),
		"get_preferred_allocation_available": options.GetGetPreferredAllocationAvailable(),
	}
}
