package sim

import (
	"context"
	"errors"
	"sort"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/lines"
)

// Settings select what a plugin offers and returns.
type Settings struct {
	Resource     string // as in vendor.com/gpu
	Preferred    string // "" offers no GetPreferredAllocation; lexical or reverse
	FailAllocate string // if not empty, Allocate fails with this text
	PreStart     bool
}

// LastName returns the part after the vendor's domain.
func (s *Settings) LastName() string {
	return s.Resource[strings.LastIndex(s.Resource, "/")+1:]
}

func (s *Settings) envPrefix() string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s.LastName()))
}

// Service responds to the kubelet's calls and reports each as an event.
type Service struct {
	pluginapi.UnimplementedDevicePluginServer
	Settings  *Settings
	Inventory *Inventory
}

func (s *Service) emit(event string, fields lines.Fields) {
	if fields == nil {
		fields = lines.Fields{}
	}
	fields["resource"] = s.Settings.Resource
	lines.Emit(event, fields)
}

// Options returns the plugin's options, for registration and GetDevicePluginOptions.
func (s *Service) Options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{
		PreStartRequired:                s.Settings.PreStart,
		GetPreferredAllocationAvailable: s.Settings.Preferred != "",
	}
}

// GetDevicePluginOptions returns the options.
func (s *Service) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	s.emit("options", nil)
	return s.Options(), nil
}

// ListAndWatch sends the list now and after each change.
func (s *Service) ListAndWatch(_ *pluginapi.Empty, stream api.ListStream) error {
	s.emit("list-opened", nil)
	defer s.emit("list-closed", nil)
	for {
		devices, changed := s.Inventory.snapshot()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		s.emit("list-sent", lines.Fields{"devices": len(devices)})
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate rejects an unknown device.
func (s *Service) Allocate(
	_ context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := api.AllocateIDs(container)
		s.emit("allocate", lines.Fields{"ids": ids})
		if s.Settings.FailAllocate != "" {
			return nil, errors.New(s.Settings.FailAllocate)
		}
		for _, id := range ids {
			if !s.Inventory.has(id) {
				return nil, status.Errorf(codes.NotFound, "no device %q here", id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, s.allocation(ids))
	}
	return response, nil
}

// allocation uses every kind of setting that a plugin can return for a container.
func (s *Service) allocation(ids []string) *pluginapi.ContainerAllocateResponse {
	resource, last := s.Settings.Resource, s.Settings.LastName()
	response := &pluginapi.ContainerAllocateResponse{
		Envs:        map[string]string{s.Settings.envPrefix() + "_DEVICES": strings.Join(ids, ",")},
		Annotations: map[string]string{resource: strings.Join(ids, ",")},
		Mounts: []*pluginapi.Mount{
			{ContainerPath: "/opt/" + last, HostPath: "/usr/share", ReadOnly: true},
		},
	}
	names := []string{}
	for _, id := range ids {
		response.Devices = append(response.Devices, &pluginapi.DeviceSpec{
			ContainerPath: "/dev/" + id, HostPath: "/dev/null", Permissions: "rw",
		})
		names = append(names, resource+"="+id)
	}
	api.SetCDI(response, names)
	return response
}

// PreStartContainer only reports the call.
func (s *Service) PreStartContainer(
	_ context.Context, request *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	s.emit("prestart", lines.Fields{"ids": api.PreStartIDs(request)})
	return &pluginapi.PreStartContainerResponse{}, nil
}

// GetPreferredAllocation prefers devices by their ID order.
func (s *Service) GetPreferredAllocation(
	_ context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		s.emit("prefer", lines.Fields{
			"available": container.AvailableDeviceIDs,
			"must":      container.MustIncludeDeviceIDs,
			"size":      container.AllocationSize,
		})
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: s.prefer(container)})
	}
	return response, nil
}

// prefer returns the required devices, then available ones from the start or the end of their
// order, up to the requested size.
func (s *Service) prefer(request *pluginapi.ContainerPreferredAllocationRequest) []string {
	chosen := append([]string{}, request.MustIncludeDeviceIDs...)
	taken := map[string]bool{}
	for _, id := range chosen {
		taken[id] = true
	}
	available := append([]string{}, request.AvailableDeviceIDs...)
	sort.Strings(available)
	if s.Settings.Preferred == "reverse" {
		sort.Sort(sort.Reverse(sort.StringSlice(available)))
	}
	for _, id := range available {
		if len(chosen) >= int(request.AllocationSize) {
			break
		}
		if !taken[id] {
			chosen = append(chosen, id)
		}
	}
	return chosen
}
