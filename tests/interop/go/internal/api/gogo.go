//go:build !latest

package api

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Generation says which of the two generated forms of the API this program speaks.
const Generation = "gogo"

// ListStream is the server's end of ListAndWatch.
type ListStream = pluginapi.DevicePlugin_ListAndWatchServer

// AllocateIDs reads what one container asks for.
func AllocateIDs(request *pluginapi.ContainerAllocateRequest) []string {
	return request.DevicesIDs
}

// PreStartIDs reads the devices of a container about to start.
func PreStartIDs(request *pluginapi.PreStartContainerRequest) []string {
	return request.DevicesIDs
}

// NewAllocateRequest asks for devices for one container, as the kubelet does.
func NewAllocateRequest(ids []string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIDs: ids}},
	}
}

// NewPreStartRequest tells of devices whose container is about to start.
func NewPreStartRequest(ids []string) *pluginapi.PreStartContainerRequest {
	return &pluginapi.PreStartContainerRequest{DevicesIDs: ids}
}

// SetCDI puts CDI device names into an allocation.
func SetCDI(response *pluginapi.ContainerAllocateResponse, names []string) {
	for _, name := range names {
		response.CDIDevices = append(response.CDIDevices, &pluginapi.CDIDevice{Name: name})
	}
}

// CDI reads the CDI device names of an allocation.
func CDI(response *pluginapi.ContainerAllocateResponse) []*pluginapi.CDIDevice {
	return response.CDIDevices
}

// Marshal gives the bytes a kubelet keeps of an allocation in its checkpoint.
func Marshal(response *pluginapi.ContainerAllocateResponse) ([]byte, error) {
	return response.Marshal()
}
