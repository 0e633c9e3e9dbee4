//go:build k137

package main

import (
	"slices"

	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

type (
	healthStream = healthapi.DRAResourceHealth_NodeWatchResourcesClient
	healthReport = healthapi.NodeWatchResourcesResponse
)

// watches returns true if the kubelet watches the health of an instance that offers these services.
func watches(offered []string) bool {
	return slices.Contains(offered, "v1.DRAResourceHealth") || slices.Contains(offered, "v1alpha1.DRAResourceHealth")
}
