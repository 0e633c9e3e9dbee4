//go:build !k137

package main

import (
	"fmt"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

const severalPlugins = false

type numaNode = cadvisorapi.Node

func newTopologyManager(machine []numaNode, s *Scenario) (topologymanager.Manager, error) {
	if err := checkOptions(s); err != nil {
		return nil, err
	}
	return topologymanager.NewManager(machine, s.Policy, s.Scope, s.PolicyOptions)
}

// checkOptions is the check that the kubelet makes before it creates the managers (run,
// cmd/kubelet/app/server.go). From 1.36, the gate is locked.
func checkOptions(s *Scenario) error {
	if len(s.PolicyOptions) == 0 || utilfeature.DefaultFeatureGate.Enabled(features.TopologyManagerPolicyOptions) {
		return nil
	}
	return fmt.Errorf("topology manager policy options %v require feature gates "+optionsGates+" enabled", s.PolicyOptions)
}

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
