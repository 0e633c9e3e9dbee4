//go:build k132

package main

import "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

// The manager queues health updates, so nothing has to read them continuously.
func watchHealth(*devicemanager.ManagerImpl) func() { return func() {} }

func healthUpdates(m *devicemanager.ManagerImpl) []string {
	pods := []string{}
	for {
		select {
		case update := <-m.Updates():
			pods = append(pods, update.PodUIDs...)
		default:
			return pods
		}
	}
}
