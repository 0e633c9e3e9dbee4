//go:build !k137

package main

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

const severalPlugins = false

type numaNode = cadvisorapi.Node

func newDeviceManager(machine []numaNode, t topologymanager.Manager) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(machine, t)
}

func admitted(handler lifecycle.PodAdmitHandler, attributes *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return handler.Admit(attributes)
}

func capacities(m *devicemanager.ManagerImpl) (v1.ResourceList, v1.ResourceList, []string) {
	return m.GetCapacity()
}

func containerHints(m *devicemanager.ManagerImpl, pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	return m.GetTopologyHints(pod, container)
}

func podHints(m *devicemanager.ManagerImpl, pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return m.GetPodTopologyHints(pod)
}

func affinityOf(t topologymanager.Manager, pod *v1.Pod, container string) topologymanager.TopologyHint {
	return t.GetAffinity(string(pod.UID), container)
}

func freeDevices(m *devicemanager.ManagerImpl) { m.UpdateAllocatedDevices() }

func allocatableDevices(m *devicemanager.ManagerImpl) devicemanager.ResourceDeviceInstances {
	return m.GetAllocatableDevices()
}
