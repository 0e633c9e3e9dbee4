//go:build k131

package main

import (
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// resourceStatus returns the health of the app containers' devices: container → resource →
// device → health.
func resourceStatus(m *devicemanager.ManagerImpl, pod *v1.Pod) any {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ResourceHealthStatus) {
		return map[string]any{}
	}
	status := v1.PodStatus{}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: container.Name})
	}
	updateStatus(m, pod, &status)
	found := map[string]map[string]map[string]string{}
	for _, container := range status.ContainerStatuses {
		for _, resource := range container.AllocatedResourcesStatus {
			if found[container.Name] == nil {
				found[container.Name] = map[string]map[string]string{}
			}
			health := map[string]string{}
			for _, device := range resource.Resources {
				health[string(device.ResourceID)] = string(device.Health)
			}
			found[container.Name][string(resource.Name)] = health
		}
	}
	return found
}
