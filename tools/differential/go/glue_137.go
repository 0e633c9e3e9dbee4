//go:build k137

package main

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	v1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// From 1.37, nearly all methods of the managers take a logger or a context.

// severalPlugins is true if a resource has several plugins, each of which can leave alone.
const severalPlugins = true

type numaNode = cadvisorapi.Node

func setDistances(node *numaNode, distances []uint64) { node.Distances = distances }

func newTopologyManager(machine []numaNode, s *Scenario) (topologymanager.Manager, error) {
	return topologymanager.NewManager(klog.Background(), machine, s.Policy, s.Scope, s.PolicyOptions)
}

func newDeviceManager(machine []numaNode, t topologymanager.Manager) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(klog.Background(), machine, t)
}

func admitted(handler lifecycle.PodAdmitHandler, attributes *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	attributes.Operation = lifecycle.AddOperation
	return handler.Admit(context.Background(), attributes)
}

func capacities(m *devicemanager.ManagerImpl) (v1.ResourceList, v1.ResourceList, []string) {
	return m.GetCapacity(klog.Background())
}

func containerHints(m *devicemanager.ManagerImpl, pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	return m.GetTopologyHints(klog.Background(), pod, container, lifecycle.AddOperation)
}

func podHints(m *devicemanager.ManagerImpl, pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return m.GetPodTopologyHints(klog.Background(), pod, lifecycle.AddOperation)
}

func affinityOf(t topologymanager.Manager, pod *v1.Pod, container string) topologymanager.TopologyHint {
	return t.GetAffinity(klog.Background(), string(pod.UID), container)
}

func updateStatus(m *devicemanager.ManagerImpl, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(klog.Background(), pod, status)
}

func freeDevices(m *devicemanager.ManagerImpl) { m.UpdateAllocatedDevices(klog.Background()) }

func allocatableDevices(m *devicemanager.ManagerImpl) devicemanager.ResourceDeviceInstances {
	return m.GetAllocatableDevices(klog.Background())
}

// failures handles admission failures without preempting pods.
type failures struct{}

func (failures) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason, _ lifecycle.Operation) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

func podResourcesServers(s source) (podresourcesapi.PodResourcesListerServer, v1alpha1.PodResourcesListerServer) {
	of := logged{s}
	providers := podresources.PodResourcesProviders{
		Pods: of, Devices: of, Cpus: of, Memory: of, DynamicResources: of,
	}
	return podresources.NewV1PodResourcesServer(context.Background(), providers),
		podresources.NewV1alpha1PodResourcesServer(providers)
}

// logged implements the providers of 1.37 with those of earlier releases.
type logged struct{ source }

func (s logged) UpdateAllocatedDevices(klog.Logger) { s.source.UpdateAllocatedDevices() }

func (s logged) GetAllocatableDevices(klog.Logger) []*podresourcesapi.ContainerDevices {
	return s.source.GetAllocatableDevices()
}

func (s logged) GetCPUs(pod *v1.Pod, container *v1.Container) []int64 {
	return s.source.GetCPUs(string(pod.UID), container.Name)
}

func (logged) GetPodCPUs(string) []int64 { return nil }

func (s logged) GetMemory(_ klog.Logger, pod *v1.Pod, container *v1.Container) []*podresourcesapi.ContainerMemory {
	return s.source.GetMemory(string(pod.UID), container.Name)
}

func (logged) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }

func (s logged) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory {
	return s.source.GetAllocatableMemory()
}

func (s logged) GetDynamicResources(_ klog.Logger, pod *v1.Pod, container *v1.Container) []*podresourcesapi.DynamicResource {
	return s.source.GetDynamicResources(pod, container)
}
