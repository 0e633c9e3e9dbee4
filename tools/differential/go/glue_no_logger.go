//go:build !k135

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

const getsActive = false

func startManager(m *devicemanager.ManagerImpl, pods func() []*v1.Pod, ready config.SourcesReady, containers containermap.ContainerMap, running names) error {
	return m.Start(pods, ready, containers, stringSet(running))
}

func stopManager(m *devicemanager.ManagerImpl) error { return m.Stop() }

func addProvider(t topologymanager.Manager, m topologymanager.HintProvider) { t.AddHintProvider(m) }

func runOptions(m *devicemanager.ManagerImpl, pod *v1.Pod, container *v1.Container) (*devicemanager.DeviceRunContainerOptions, error) {
	return m.GetDeviceRunContainerOptions(pod, container)
}

func predicates(node func() *v1.Node, m *devicemanager.ManagerImpl) lifecycle.PodAdmitHandler {
	get := func() (*v1.Node, error) { return node(), nil }
	return lifecycle.NewPredicateAdmitHandler(get, failures{}, m.UpdatePluginResources)
}
