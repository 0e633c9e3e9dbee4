//go:build k135

package main

import "k8s.io/kubernetes/pkg/kubelet/cm/dra/state"

func shareOf(device state.Device) *string { return (*string)(device.ShareID) }
