package main

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	v1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// podResources calls all methods of the server.
func (n *node) podResources() (map[string]json.RawMessage, error) {
	ctx := context.Background()
	server, alpha := podResourcesServers(source{n})
	found := map[string]json.RawMessage{}
	list, err := server.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	found["list"] = plain(list, err)
	old, err := alpha.List(ctx, &v1alpha1.ListPodResourcesRequest{})
	found["list_v1alpha1"] = plain(old, err)
	allocatable, err := server.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
	found["allocatable"] = plain(allocatable, err)
	for _, name := range n.podNames() {
		get, err := getPod(ctx, server, name)
		found["get "+name] = plain(get, err)
	}
	return found, nil
}

// podNames returns the names of all pods, and of one that does not exist.
func (n *node) podNames() []string {
	names := []string{"missing"}
	for _, each := range n.pods {
		names = append(names, each.pod.Name)
	}
	return names
}

// source implements the providers that the kubelet passes to the PodResources server.
type source struct{ *node }

func (s source) GetActivePods() []*v1.Pod { return s.those(true) }

func (s source) GetPods() []*v1.Pod { return s.those(false) }

func (s source) those(active bool) []*v1.Pod {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := []*v1.Pod{}
	for _, each := range s.pods {
		if each.active || !active {
			found = append(found, each.pod)
		}
	}
	return found
}

func (s source) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range s.those(getsActive) {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (s source) UpdateAllocatedDevices() { freeDevices(s.manager) }

func (s source) GetDevices(pod, container string) []*podresourcesapi.ContainerDevices {
	return entries(s.manager.GetDevices(pod, container))
}

func (s source) GetAllocatableDevices() []*podresourcesapi.ContainerDevices {
	return entries(allocatableDevices(s.manager))
}

// entries converts the device manager's response as the container manager does: an entry for
// each device and NUMA node.
func entries(instances devicemanager.ResourceDeviceInstances) []*podresourcesapi.ContainerDevices {
	var found []*podresourcesapi.ContainerDevices
	for resource, devices := range instances {
		for id, device := range devices {
			entry := func(topology *podresourcesapi.TopologyInfo) {
				found = append(found, &podresourcesapi.ContainerDevices{
					ResourceName: resource, DeviceIds: []string{id}, Topology: topology,
				})
			}
			if device.Topology == nil {
				entry(nil)
				continue
			}
			for _, node := range device.Topology.Nodes {
				entry(&podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: node.ID}}})
			}
		}
	}
	return found
}

func (s source) GetCPUs(string, string) []int64 {
	if s.scenario.Other == nil {
		return nil
	}
	return s.scenario.Other.CPUs
}

func (s source) GetAllocatableCPUs() []int64 { return s.GetCPUs("", "") }

func (s source) GetMemory(string, string) []*podresourcesapi.ContainerMemory {
	if s.scenario.Other == nil {
		return nil
	}
	var found []*podresourcesapi.ContainerMemory
	for _, block := range s.scenario.Other.Memory {
		topology := &podresourcesapi.TopologyInfo{}
		for _, node := range block.Nodes {
			topology.Nodes = append(topology.Nodes, &podresourcesapi.NUMANode{ID: node})
		}
		found = append(found, containerMemory(block.Type, block.Size, topology))
	}
	return found
}

func (s source) GetAllocatableMemory() []*podresourcesapi.ContainerMemory { return s.GetMemory("", "") }
