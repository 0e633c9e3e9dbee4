//go:build !k134

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	v1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// failures handles admission failures without preempting pods.
type failures struct{}

func (failures) HandleAdmissionFailure(_ *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

func podResourcesServers(s source) (podresourcesapi.PodResourcesListerServer, v1alpha1.PodResourcesListerServer) {
	providers := podresources.PodResourcesProviders{
		Pods: s, Devices: s, Cpus: s, Memory: s, DynamicResources: s,
	}
	return podresources.NewV1PodResourcesServer(providers),
		podresources.NewV1alpha1PodResourcesServer(providers)
}
