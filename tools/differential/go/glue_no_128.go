//go:build !k128

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// Up to 1.27, the API drops the field of restartable init containers.

func makeRestartable(*v1.Container) {}

func isRestartable(*v1.Container) bool { return false }

// plainOptions adds the field for CDI devices, which kubelets up to 1.27 do not have.
func plainOptions(options *devicemanager.DeviceRunContainerOptions) any {
	if options == nil {
		return nil
	}
	return struct {
		*devicemanager.DeviceRunContainerOptions
		CDIDevices []string
	}{options, nil}
}
