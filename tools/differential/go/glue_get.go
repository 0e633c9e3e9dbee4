//go:build k127

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const optionsGates = `"TopologyManagerPolicyOptions"`

func getPod(ctx context.Context, server podresourcesapi.PodResourcesListerServer, name string) (any, error) {
	return server.Get(ctx, &podresourcesapi.GetPodResourcesRequest{
		PodName: name, PodNamespace: "default",
	})
}

func (source) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
