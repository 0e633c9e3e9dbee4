// Package api hides the differences of the two generated forms of the device plugin API.
//
// Up to Kubernetes 1.34 the module k8s.io/kubelet is generated with gogo, later with
// protobuf-go: the wire format is the same, some Go names differ. The build tag "latest" (with
// latest.mod) selects the second.
package api

import (
	"encoding/base64"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Dial prepares a connection to a unix socket. It retries quickly: the peer's socket file
// exists a moment before it is served.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second,
			},
			MinConnectTimeout: time.Second,
		}))
}

// NUMANodes returns the NUMA nodes of a device; nil if it has no topology.
func NUMANodes(topology *pluginapi.TopologyInfo) []int64 {
	if topology == nil {
		return nil
	}
	nodes := []int64{}
	for _, node := range topology.Nodes {
		nodes = append(nodes, node.ID)
	}
	return nodes
}

// Allocation is one container's allocation for tests. Stored contains the bytes that a kubelet
// writes to its checkpoint, in base64, including fields that this API does not have.
type Allocation struct {
	Envs        map[string]string `json:"envs"`
	Mounts      []Mount           `json:"mounts"`
	Devices     []Device          `json:"devices"`
	Annotations map[string]string `json:"annotations"`
	CDIDevices  []string          `json:"cdi_devices"`
	Stored      string            `json:"stored"`
}

// Mount is one mount of an allocation.
type Mount struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	ReadOnly      bool   `json:"read_only"`
}

// Device is one device node of an allocation.
type Device struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	Permissions   string `json:"permissions"`
}

// ReadAllocation converts a container's response for tests.
func ReadAllocation(response *pluginapi.ContainerAllocateResponse) (Allocation, error) {
	stored, err := Marshal(response)
	if err != nil {
		return Allocation{}, err
	}
	allocation := Allocation{
		Envs: response.Envs, Mounts: []Mount{}, Devices: []Device{},
		Annotations: response.Annotations, CDIDevices: []string{},
		Stored: base64.StdEncoding.EncodeToString(stored),
	}
	for _, m := range response.Mounts {
		allocation.Mounts = append(allocation.Mounts, Mount{m.ContainerPath, m.HostPath, m.ReadOnly})
	}
	for _, d := range response.Devices {
		allocation.Devices = append(allocation.Devices,
			Device{d.ContainerPath, d.HostPath, d.Permissions})
	}
	for _, d := range CDI(response) {
		allocation.CDIDevices = append(allocation.CDIDevices, d.Name)
	}
	return allocation, nil
}
