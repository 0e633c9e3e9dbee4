//go:build !k127

package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	v1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

const optionsGates = `"TopologyManager", "TopologyManagerPolicyOptions"`

// Up to 1.26, PodResources has no Get, and its servers take the providers one by one.

func podResourcesServers(s source) (podresourcesapi.PodResourcesListerServer, v1alpha1.PodResourcesListerServer) {
	return podresources.NewV1PodResourcesServer(s, s, s, s), podresources.NewV1alpha1PodResourcesServer(s, s)
}

// getPod returns the error of a gRPC server for an unknown method.
func getPod(context.Context, podresourcesapi.PodResourcesListerServer, string) (any, error) {
	return nil, status.Error(codes.Unimplemented, "unknown method Get for service v1.PodResourcesLister")
}
