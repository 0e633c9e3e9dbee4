//go:build latest

package api

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Generation says which of the two generated forms of the API this program speaks.
const Generation = "protobuf-go"

// ListStream is the server's end of ListAndWatch.
type ListStream = grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]

// AllocateIDs reads what one container asks for.
func AllocateIDs(request *pluginapi.ContainerAllocateRequest) []string {
	return request.DevicesIds
}

// PreStartIDs reads the devices of a container about to start.
func PreStartIDs(request *pluginapi.PreStartContainerRequest) []string {
	return request.DevicesIds
}

// NewAllocateRequest asks for devices for one container, as the kubelet does.
func NewAllocateRequest(ids []string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	}
}

// NewPreStartRequest tells of devices whose container is about to start.
func NewPreStartRequest(ids []string) *pluginapi.PreStartContainerRequest {
	return &pluginapi.PreStartContainerRequest{DevicesIds: ids}
}

// SetCDI puts CDI device names into an allocation.
func SetCDI(response *pluginapi.ContainerAllocateResponse, names []string) {
	for _, name := range names {
		response.CdiDevices = append(response.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
}

// CDI reads the CDI device names of an allocation.
func CDI(response *pluginapi.ContainerAllocateResponse) []*pluginapi.CDIDevice {
	return response.CdiDevices
}

// Marshal gives the bytes a kubelet keeps of an allocation in its checkpoint.
func Marshal(response *pluginapi.ContainerAllocateResponse) ([]byte, error) {
	return proto.Marshal(response)
}
