//go:build k134

package main

import (
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// From 1.34, the API is generated with protobuf-go.

type unimplemented = pluginapi.UnimplementedDevicePluginServer

func allocateIDs(r *pluginapi.ContainerAllocateRequest) []string { return r.DevicesIds }

func preStartIDs(r *pluginapi.PreStartContainerRequest) []string { return r.DevicesIds }

func unmarshal(data []byte, r *pluginapi.ContainerAllocateResponse) error {
	return proto.Unmarshal(data, r)
}

func containerMemory(kind string, size uint64, topology *podresourcesapi.TopologyInfo) *podresourcesapi.ContainerMemory {
	return &podresourcesapi.ContainerMemory{MemoryType: kind, Size: size, Topology: topology}
}
