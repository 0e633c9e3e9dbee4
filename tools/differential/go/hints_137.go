//go:build k137

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// provider implements topologymanager.HintProvider with fixed hints.
type provider struct{ *Other }

func (p provider) GetTopologyHints(_ klog.Logger, _ *v1.Pod, container *v1.Container, _ lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return p.hints(container)
}

func (p provider) GetPodTopologyHints(_ klog.Logger, pod *v1.Pod, _ lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return p.podHints(pod)
}

func (provider) Allocate(context.Context, *v1.Pod, *v1.Container, lifecycle.Operation) error {
	return nil
}

func (provider) AllocatePod(klog.Logger, *v1.Pod, lifecycle.Operation) error { return nil }
