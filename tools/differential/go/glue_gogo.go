//go:build !k134

package main

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Up to 1.33, the API is generated with gogo.

type unimplemented struct{}

func allocateIDs(r *pluginapi.ContainerAllocateRequest) []string { return r.DevicesIDs }

func preStartIDs(r *pluginapi.PreStartContainerRequest) []string { return r.DevicesIDs }

func unmarshal(data []byte, r *pluginapi.ContainerAllocateResponse) error {
	return r.Unmarshal(data)
}

func containerMemory(kind string, size uint64, topology *podresourcesapi.TopologyInfo) *podresourcesapi.ContainerMemory {
	return &podresourcesapi.ContainerMemory{MemoryType: kind, Size_: size, Topology: topology}
}
