//go:build k134 && !k137

package main

import v1 "k8s.io/api/core/v1"

func updateStatus(m *manager, pod *v1.Pod, status *v1.PodStatus) {
	m.UpdateAllocatedResourcesStatus(pod, status)
}
