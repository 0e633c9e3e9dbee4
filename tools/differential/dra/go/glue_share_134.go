//go:build k134 && !k135

package main

import "k8s.io/kubernetes/pkg/kubelet/cm/dra/state"

func shareOf(state.Device) *string { return nil }
