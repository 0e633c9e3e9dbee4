//go:build !k126

package main

import "k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

// Up to 1.25, the topology manager has no policy options and reads no distances.

func setDistances(*numaNode, []uint64) {}

func newTopologyManager(machine []numaNode, s *Scenario) (topologymanager.Manager, error) {
	return topologymanager.NewManager(machine, s.Policy, s.Scope)
}
