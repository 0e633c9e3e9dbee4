//go:build !k137

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// provider implements topologymanager.HintProvider with fixed hints.
type provider struct{ *Other }

func (p provider) GetTopologyHints(_ *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	return p.hints(container)
}

func (p provider) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return p.podHints(pod)
}

func (provider) Allocate(*v1.Pod, *v1.Container) error { return nil }

// AllocatePod is called from 1.36 on.
func (provider) AllocatePod(*v1.Pod) error { return nil }
