package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// collector replaces the garbage collector, which cannot be built here. It deletes objects whose
// owners have all been deleted. It supports neither foreground deletion nor orphaning.
type collector struct {
	client  metadata.Interface
	listers map[schema.GroupVersionResource]cache.GenericLister
	missing map[types.UID]bool // also had no owner at the last check
}

var owned = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "nodes"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "controllerrevisions"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

func newCollector(client metadata.Interface, shared informers.SharedInformerFactory) *collector {
	found := &collector{client: client, listers: map[schema.GroupVersionResource]cache.GenericLister{}, missing: map[types.UID]bool{}}
	for _, resource := range owned {
		informer, err := shared.ForResource(resource)
		must(err)
		informer.Informer()
		found.listers[resource] = informer.Lister()
	}
	return found
}

func (c *collector) run(ctx context.Context, shared informers.SharedInformerFactory) {
	shared.WaitForCacheSync(ctx.Done())
	wait.UntilWithContext(ctx, c.look, time.Second)
}

func (c *collector) look(ctx context.Context) {
	there := map[types.UID]bool{}
	all := map[schema.GroupVersionResource][]metav1.Object{}
	for resource, lister := range c.listers {
		objects, err := lister.List(labels.Everything())
		must(err)
		for _, each := range objects {
			object := metadataOf(each)
			there[object.GetUID()] = true
			all[resource] = append(all[resource], object)
		}
	}
	missing := map[types.UID]bool{}
	for resource, objects := range all {
		for _, object := range objects {
			if !isOrphan(object, there) {
				continue
			}
			missing[object.GetUID()] = true
			if c.missing[object.GetUID()] {
				c.remove(ctx, resource, object)
			}
		}
	}
	c.missing = missing
}

func metadataOf(object runtime.Object) metav1.Object {
	return object.(metav1.ObjectMetaAccessor).GetObjectMeta()
}

func isOrphan(object metav1.Object, there map[types.UID]bool) bool {
	if len(object.GetOwnerReferences()) == 0 || object.GetDeletionTimestamp() != nil {
		return false
	}
	for _, owner := range object.GetOwnerReferences() {
		if there[owner.UID] {
			return false
		}
	}
	return true
}

func (c *collector) remove(ctx context.Context, resource schema.GroupVersionResource, object metav1.Object) {
	uid, background := object.GetUID(), metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background}
	err := c.client.Resource(resource).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), options)
	if err != nil {
		klog.V(2).Info(err)
	}
}
