//go:build !k131

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

func watchHealth(*devicemanager.ManagerImpl) func() { return func() {} }

func healthUpdates(*devicemanager.ManagerImpl) []string { return []string{} }

func resourceStatus(*devicemanager.ManagerImpl, *v1.Pod) any { return map[string]any{} }
