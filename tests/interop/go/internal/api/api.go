// Package api hides where the two generated forms of the device plugin API differ.
//
// Up to Kubernetes 1.34 the module k8s.io/kubelet is generated with gogo, later with
// protobuf-go: the wire is the same, some Go names are not. The build tag "latest" (with
// latest.mod) chooses the second.
package api

import (
	"encoding/base64"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Dial prepares a connection to a unix socket. It tries again quickly: the peer's socket
// file exists a moment before it listens.
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

// NUMANodes reads a device's nodes; nil where it has no topology at all.
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

// Allocation is one container's allocation as a test reads it. IdlePool holds, in base64,
// what a kubelet writes into its checkpoint: fields that this API does not know too.
type Allocation struct {
	Envs        map[string]string `json:"envs"`
	Mounts      []Mount           `json:"mounts"`
	Devices     []Device          `json:"devices"`
	Annotations map[string]string `json:"annotations"`
	CDIDevices  []string          `json:"cdi_devices"`
	IdlePool    string            `json:"kept"`
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

// ReadAllocation turns a container's response into what a test reads.
func ReadAllocation(response *pluginapi.ContainerAllocateResponse) (Allocation, error) {
	kept, err := Marshal(response)
	if err != nil {
		return Allocation{}, err
	}
	allocation := Allocation{
		Envs: response.Envs, Mounts: []Mount{}, Devices: []Device{},
		Annotations: response.Annotations, CDIDevices: []string{},
		IdlePool: base64.StdEncoding.EncodeToString(kept),
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
