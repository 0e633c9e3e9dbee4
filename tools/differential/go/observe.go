package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func (n *node) hints(of *Pod) map[string]any {
	pod := makePod(of)
	first := allContainers(pod)[0]
	return map[string]any{
		"container": readHints(containerHints(n.manager, pod, &first)),
		"pod":       readHints(podHints(n.manager, pod)),
	}
}

func readHints(hints map[string][]topologymanager.TopologyHint) map[string][]Hint {
	found := map[string][]Hint{}
	for resource, each := range hints {
		found[resource] = nil
		if each == nil {
			continue
		}
		found[resource] = []Hint{}
		for _, hint := range each {
			found[resource] = append(found[resource], *readHint(hint))
		}
	}
	return found
}

func readHint(hint topologymanager.TopologyHint) *Hint {
	if hint.NUMANodeAffinity == nil {
		return nil
	}
	return &Hint{hint.NUMANodeAffinity.GetBits(), hint.Preferred}
}

func (n *node) affinity(pod *v1.Pod) map[string]*Hint {
	found := map[string]*Hint{}
	for _, container := range allContainers(pod) {
		found[container.Name] = readHint(affinityOf(n.topology, pod, container.Name))
	}
	return found
}

// observe adds the state after a step.
func (n *node) observe(outcome *Outcome, lists bool) error {
	outcome.Calls = n.log.take()
	capacity, allocatable := n.capacity()
	outcome.Capacity, outcome.Allocatable = counts(capacity), counts(allocatable)
	outcome.HealthUpdates = healthUpdates(n.manager)
	outcome.Devices = map[string]map[string]map[string][]string{}
	outcome.Status = map[string]any{}
	for _, each := range n.pods {
		outcome.Devices[string(each.pod.UID)] = n.holdings(each.pod)
		outcome.Status[string(each.pod.UID)] = resourceStatus(n.manager, each.pod)
	}
	now := n.written()
	outcome.Written, n.seen = now != n.seen, now
	if outcome.Written {
		text, err := os.ReadFile(filepath.Join(n.dir, checkpointName))
		if err != nil {
			return err
		}
		outcome.Checkpoint = text
	}
	if !lists {
		return nil
	}
	found, err := n.podResources()
	outcome.Lists = found
	return err
}

func counts(list v1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, amount := range list {
		found[string(name)] = amount.Value()
	}
	return found
}

func (n *node) holdings(pod *v1.Pod) map[string]map[string][]string {
	found := map[string]map[string][]string{}
	for _, container := range allContainers(pod) {
		held := map[string][]string{}
		for resource, devices := range n.manager.GetDevices(string(pod.UID), container.Name) {
			ids := []string{}
			for id := range devices {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			held[resource] = ids
		}
		found[container.Name] = held
	}
	return found
}

func plain(message any, err error) json.RawMessage {
	if err != nil {
		message = map[string]string{"error": status.Convert(err).Message(), "code": status.Code(err).String()}
	}
	text, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	return text
}
