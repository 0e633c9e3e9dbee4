//go:build latest

package api

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Generation names the generated form of the API that this program uses.
const Generation = "protobuf-go"

// ListStream is the server's end of ListAndWatch.
type ListStream = grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]

// AllocateIDs returns the devices that a container requests.
func AllocateIDs(request *pluginapi.ContainerAllocateRequest) []string {
	return request.DevicesIds
}

// PreStartIDs returns the devices of a container that is about to start.
func PreStartIDs(request *pluginapi.PreStartContainerRequest) []string {
	return request.DevicesIds
}

// NewAllocateRequest requests devices for one container, as the kubelet does.
func NewAllocateRequest(ids []string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	}
}

// NewPreStartRequest names the devices of a container that is about to start.
func NewPreStartRequest(ids []string) *pluginapi.PreStartContainerRequest {
	return &pluginapi.PreStartContainerRequest{DevicesIds: ids}
}

// SetCDI adds CDI device names to an allocation.
func SetCDI(response *pluginapi.ContainerAllocateResponse, names []string) {
	for _, name := range names {
		response.CdiDevices = append(response.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
}

// CDI returns the CDI device names of an allocation.
func CDI(response *pluginapi.ContainerAllocateResponse) []*pluginapi.CDIDevice {
	return response.CdiDevices
}

// Marshal returns the bytes of an allocation that a kubelet stores in its checkpoint.
func Marshal(response *pluginapi.ContainerAllocateResponse) ([]byte, error) {
	return proto.Marshal(response)
}
