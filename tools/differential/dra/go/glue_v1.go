//go:build k134

package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// client is the client of the API server. The parts that the manager must not call are nil.
type client struct {
	kubernetes.Interface
	typed.ResourceV1Interface
	server *server
}

func (c *client) ResourceV1() typed.ResourceV1Interface { return c }

func (c *client) ResourceClaims(namespace string) typed.ResourceClaimInterface {
	return claimClient{nil, c.server, namespace}
}

func (c *client) ResourceSlices() typed.ResourceSliceInterface { return sliceClient{nil, c.server} }

type claimClient struct {
	typed.ResourceClaimInterface
	server    *server
	namespace string
}

func (c claimClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	found := &resourceapi.ResourceClaim{}
	return found, c.server.get(c.namespace, name, found)
}

type sliceClient struct {
	typed.ResourceSliceInterface
	server *server
}

func (c sliceClient) DeleteCollection(_ context.Context, _ metav1.DeleteOptions, options metav1.ListOptions) error {
	c.server.wipe(options)
	return nil
}
