//go:build k128

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

func makeRestartable(container *v1.Container) {
	always := v1.ContainerRestartPolicyAlways
	container.RestartPolicy = &always
}

func isRestartable(container *v1.Container) bool { return container.RestartPolicy != nil }

func plainOptions(options *devicemanager.DeviceRunContainerOptions) any { return options }
