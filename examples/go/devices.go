// Package devices lists the devices of each container, from a kubelet's PodResources API.
package devices

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// List returns the device IDs of each resource, by "namespace/pod/container resource".
func List(ctx context.Context, socket string) (map[string][]string, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := podresources.NewPodResourcesListerClient(conn)
	response, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	devices := map[string][]string{}
	for _, pod := range response.PodResources {
		for _, container := range pod.Containers {
			// A kubelet can list a resource several times, for example once per NUMA node.
			for _, entry := range container.Devices {
				key := fmt.Sprintf("%s/%s/%s %s",
					pod.Namespace, pod.Name, container.Name, entry.ResourceName)
				devices[key] = append(devices[key], entry.DeviceIds...)
			}
		}
	}
	return devices, nil
}
