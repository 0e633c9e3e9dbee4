//go:build k126 && !k137

package main

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func setDistances(node *numaNode, distances []uint64) { node.Distances = distances }

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
