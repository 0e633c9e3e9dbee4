package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// The plugin watcher and the CPU and memory managers, as far as the device manager notices them.

func (o *Other) hints(container *v1.Container) map[string][]topologymanager.TopologyHint {
	if container.Resources.Limits.Cpu().IsZero() {
		return nil
	}
	return o.all()
}

func (o *Other) podHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	for _, container := range allContainers(pod) {
		if !container.Resources.Limits.Cpu().IsZero() {
			return o.all()
		}
	}
	return nil
}

func (o *Other) all() map[string][]topologymanager.TopologyHint {
	if o.Hints == nil {
		return map[string][]topologymanager.TopologyHint{"cpu": nil}
	}
	found := []topologymanager.TopologyHint{}
	for _, hint := range o.Hints {
		mask, err := bitmask.NewBitMask(hint.Nodes...)
		if err != nil {
			panic(err)
		}
		found = append(found, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: hint.Preferred})
	}
	return map[string][]topologymanager.TopologyHint{"cpu": found}
}

// watched validates and registers a plugin through the handler of the plugin watcher, whose
// signature differs between releases.
func watched(handler any, r *Registration, socket string) Reply {
	versions := []string{"v1beta1"}
	if r.Version != "" {
		versions = []string{r.Version}
	}
	var err error
	switch handler := handler.(type) {
	case interface {
		ValidatePlugin(string, string, []string) error
	}:
		err = handler.ValidatePlugin(r.Resource, socket, versions)
	case interface {
		ValidatePlugin(context.Context, string, string, []string) error
	}:
		err = handler.ValidatePlugin(context.Background(), r.Resource, socket, versions)
	}
	if err != nil {
		return Reply{"validate", err.Error()}
	}
	switch handler := handler.(type) {
	case interface {
		RegisterPlugin(string, string, []string) error
	}:
		err = handler.RegisterPlugin(r.Resource, socket, versions)
	case interface {
		RegisterPlugin(string, string, []string, *time.Duration) error
	}:
		err = handler.RegisterPlugin(r.Resource, socket, versions, nil)
	case interface {
		RegisterPlugin(context.Context, string, string, []string, *time.Duration) error
	}:
		err = handler.RegisterPlugin(context.Background(), r.Resource, socket, versions, nil)
	}
	if err != nil {
		return Reply{"register", err.Error()}
	}
	return Reply{}
}

func unwatched(handler any, resource, socket string) {
	switch handler := handler.(type) {
	case interface{ DeRegisterPlugin(string) }:
		handler.DeRegisterPlugin(resource)
	case interface{ DeRegisterPlugin(string, string) }:
		handler.DeRegisterPlugin(resource, socket)
	case interface {
		DeRegisterPlugin(context.Context, string, string)
	}:
		handler.DeRegisterPlugin(context.Background(), resource, socket)
	}
}
