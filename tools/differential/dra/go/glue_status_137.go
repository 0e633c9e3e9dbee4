//go:build k137

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

func updateStatus(m *manager, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(klog.Background(), pod, status)
}
