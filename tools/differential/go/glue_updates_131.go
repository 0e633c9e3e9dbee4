//go:build k131 && !k132

package main

import (
	"sync"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// The manager of 1.31 does not process a list until its last health update was read: read
// continuously.

var updates struct {
	sync.Mutex
	pods map[*devicemanager.ManagerImpl][]string
}

func watchHealth(m *devicemanager.ManagerImpl) func() {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case update := <-m.Updates():
				keep(m, update.PodUIDs)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		healthUpdates(m)
	}
}

func keep(m *devicemanager.ManagerImpl, pods []string) {
	updates.Lock()
	defer updates.Unlock()
	if updates.pods == nil {
		updates.pods = map[*devicemanager.ManagerImpl][]string{}
	}
	updates.pods[m] = append(updates.pods[m], pods...)
}

func healthUpdates(m *devicemanager.ManagerImpl) []string {
	updates.Lock()
	defer updates.Unlock()
	pods := []string{}
	for _, pod := range updates.pods[m] {
		if pod != "" { // empty for a device that is not allocated
			pods = append(pods, pod)
		}
	}
	delete(updates.pods, m)
	return pods
}
