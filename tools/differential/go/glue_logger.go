//go:build k135

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// From 1.35, the managers take a context or a logger.

// getsActive is true if Get finds only active pods. Up to 1.34, this requires a patch release
// newer than the one that is built here.
const getsActive = true

func startManager(m *devicemanager.ManagerImpl, pods func() []*v1.Pod, ready config.SourcesReady, containers containermap.ContainerMap, running names) error {
	return m.Start(klog.Background(), pods, ready, containers, running)
}

func stopManager(m *devicemanager.ManagerImpl) error { return m.Stop(klog.Background()) }

func addProvider(t topologymanager.Manager, m topologymanager.HintProvider) {
	t.AddHintProvider(klog.Background(), m)
}

func runOptions(m *devicemanager.ManagerImpl, pod *v1.Pod, container *v1.Container) (*devicemanager.DeviceRunContainerOptions, error) {
	return m.GetDeviceRunContainerOptions(context.Background(), pod, container)
}

func predicates(node func() *v1.Node, m *devicemanager.ManagerImpl) lifecycle.PodAdmitHandler {
	get := func(context.Context, bool) (*v1.Node, error) { return node(), nil }
	return lifecycle.NewPredicateAdmitHandler(get, failures{}, m.UpdatePluginResources)
}
