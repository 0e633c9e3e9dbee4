//go:build k134

package main

import (
	"context"
	"reflect"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	draplugin "k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
)

// countingHandler counts the health streams that the manager reads.
type countingHandler struct {
	draplugin.StreamHandler
	streams *streams
}

func (h countingHandler) HandleWatchResourcesStream(ctx context.Context, stream healthStream, driver string) error {
	h.streams.open.Add(1)
	h.streams.begun.Add(1)
	defer h.streams.open.Add(-1)
	return h.StreamHandler.HandleWatchResourcesStream(ctx, &countingStream{stream, h.streams, false}, driver)
}

// countingStream counts a report when the manager asks for the next one.
type countingStream struct {
	healthStream
	streams  *streams
	received bool
}

func (s *countingStream) Recv() (*healthReport, error) {
	if s.received {
		s.streams.processed.Add(1)
	}
	report, err := s.healthStream.Recv()
	s.received = err == nil
	return report, err
}

func (k *kubelet) countStreams(handler reflect.Value) {
	below := handler.Interface().(draplugin.StreamHandler)
	setValue(handler, draplugin.StreamHandler(countingHandler{below, &k.streams}))
}

// health waits until the kubelet reads the health streams that the drivers serve.
func (k *kubelet) health(d *driver) error {
	if d.registered != nil && d.server != nil && !d.isWatched {
		d.isWatched = true
		if utilfeature.DefaultFeatureGate.Enabled(features.ResourceHealthStatus) && watches(d.registered) {
			k.streams.expected++
		}
	}
	return wait(func() bool {
		return k.streams.begun.Load() >= k.streams.expected && k.streams.open.Load() == k.node.served()
	}, "the kubelet does not follow the health of "+d.key)
}

func healthOf(devices []v1.ResourceHealth) []object {
	found := []object{}
	for _, device := range devices {
		health := object{"resource_id": device.ResourceID, "health": device.Health}
		if message := messageOf(device); message != "" {
			health["message"] = message
		}
		found = append(found, health)
	}
	return found
}
