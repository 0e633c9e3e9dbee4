//go:build k134

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// failures handles admission failures without preempting pods.
type failures struct{}

func (failures) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

func podResourcesServer(providers podresources.PodResourcesProviders) podresourcesapi.PodResourcesListerServer {
	return podresources.NewV1PodResourcesServer(context.Background(), providers)
}
