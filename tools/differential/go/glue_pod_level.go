//go:build k132

package main

import v1 "k8s.io/api/core/v1"

func setPodLevel(pod *v1.Pod, amounts v1.ResourceList) {
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: amounts, Requests: amounts.DeepCopy()}
}
