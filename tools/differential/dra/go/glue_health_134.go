//go:build k134 && !k137

package main

import healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

type (
	healthStream = healthapi.DRAResourceHealth_NodeWatchResourcesClient
	healthReport = healthapi.NodeWatchResourcesResponse
)

// watches is true: the kubelet watches the health of each instance.
func watches([]string) bool { return true }
