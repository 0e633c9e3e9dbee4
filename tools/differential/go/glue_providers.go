//go:build k127 && !k134

package main

import (
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	v1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

func podResourcesServers(s source) (podresourcesapi.PodResourcesListerServer, v1alpha1.PodResourcesListerServer) {
	providers := podresources.PodResourcesProviders{
		Pods: s, Devices: s, Cpus: s, Memory: s, DynamicResources: s,
	}
	return podresources.NewV1PodResourcesServer(providers),
		podresources.NewV1alpha1PodResourcesServer(providers)
}
