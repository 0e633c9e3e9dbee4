package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

const checkpointName = "kubelet_internal_checkpoint"

// known is a pod of the node with its state.
type known struct {
	pod     *v1.Pod
	active  bool
	running names
}

// node has the surroundings of the device manager in a kubelet: pods and plugins.
type node struct {
	scenario  *Scenario
	dir       string
	log       callLog
	topology  topologymanager.Manager
	manager   *devicemanager.ManagerImpl
	unwatch   func() // stops reading the manager's health updates
	predicate lifecycle.PodAdmitHandler
	ready     bool

	mutex sync.Mutex // guards pods, which PodResources and the manager read concurrently
	pods  []*known
	// others are active pods that exist only in the checkpoint.
	others []*v1.Pod

	plugins map[string]*served
	// old has replaced plugins, because the kubelet does not close their connections.
	old   map[string][]*served
	names int
	seen  string
}

func newNode(scenario *Scenario) (*node, error) {
	n := &node{
		scenario: scenario, dir: pluginapi.DevicePluginPath,
		plugins: map[string]*served{}, old: map[string][]*served{},
	}
	if err := n.clear(); err != nil {
		return nil, err
	}
	for _, uid := range scenario.ActivePods {
		n.others = append(n.others, makePod(&Pod{UID: uid}))
	}
	if err := n.seed(); err != nil {
		return nil, err
	}
	return n, n.start(containermap.NewContainerMap(), newNames())
}

func (n *node) clear() error {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(n.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// seed writes the checkpoint that the scenario starts with.
func (n *node) seed() error {
	if len(n.scenario.Allocated) == 0 {
		return nil
	}
	entries := []checkpoint.PodDevicesEntry{}
	registered := map[string][]string{}
	for _, held := range n.scenario.Allocated {
		entries = append(entries, checkpoint.PodDevicesEntry{
			PodUID: held.PodUID, ContainerName: held.Container, ResourceName: held.Resource,
			DeviceIDs: held.Devices, AllocResp: []byte("\n\x06\n\x01A\x12\x011"),
		})
		registered[held.Resource] = []string{}
	}
	text, err := checkpoint.New(entries, registered).MarshalCheckpoint()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, checkpointName), text, 0o600)
}

// start creates both managers, as the kubelet does at its start.
func (n *node) start(containers containermap.ContainerMap, running names) error {
	machine := []numaNode{}
	for i, id := range n.scenario.NUMANodes {
		one := numaNode{Id: id}
		if n.scenario.NUMADistances != nil {
			setDistances(&one, n.scenario.NUMADistances[i])
		}
		machine = append(machine, one)
	}
	var err error
	n.topology, err = newTopologyManager(machine, n.scenario)
	if err != nil {
		return configError{err}
	}
	n.manager, err = newDeviceManager(machine, n.topology)
	if err != nil {
		return err
	}
	n.unwatch = watchHealth(n.manager)
	addProvider(n.topology, n.manager)
	n.predicate = predicates(n.status, n.manager)
	return startManager(n.manager, n.activePods, sources{n}, containers, running)
}

// sources implements config.SourcesReady: ready when all pods are known.
type sources struct{ *node }

func (sources) AddSource(string) {}

func (s sources) AllReady() bool { return s.ready }

func (n *node) stop() {
	if n.manager != nil {
		stopManager(n.manager)
		n.unwatch()
		n.unwatch = func() {}
	}
	for _, plugins := range n.old {
		for _, p := range plugins {
			p.stop()
		}
	}
	for _, p := range n.plugins {
		p.stop()
	}
	clear(n.plugins)
	clear(n.old)
}

func (n *node) restart(reboot bool) (map[string]Verdict, error) {
	containers, running := containermap.NewContainerMap(), newNames()
	for _, each := range n.pods {
		if reboot {
			each.running = newNames()
		}
		for name := range each.running {
			id := string(each.pod.UID) + "/" + name
			containers.Add(string(each.pod.UID), name, id)
			running.Insert(id)
		}
	}
	n.stop()
	n.ready = false
	if err := n.start(containers, running); err != nil {
		return nil, err
	}
	verdicts := map[string]Verdict{}
	for _, each := range n.pods {
		if !each.active {
			continue
		}
		verdict := n.decide(each)
		verdicts[string(each.pod.UID)] = verdict
		if verdict.Admit && each.running.Len() == 0 {
			n.startPod(each)
		}
	}
	n.ready = true
	return verdicts, nil
}

// -- pods --------------------------------------------------------------------------------

func makePod(of *Pod) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(of.UID), Name: of.UID, Namespace: "default",
	}}
	for _, container := range of.InitContainers {
		made := makeContainer(container)
		if container.Restartable {
			makeRestartable(&made)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, made)
	}
	for _, container := range of.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, makeContainer(container))
	}
	return pod
}

func makeContainer(of Container) v1.Container {
	limits := v1.ResourceList{}
	for name, amount := range of.Limits {
		limits[v1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	return v1.Container{
		Name:      of.Name,
		Resources: v1.ResourceRequirements{Limits: limits, Requests: limits.DeepCopy()},
	}
}

func (n *node) activePods() []*v1.Pod {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	pods := slices.Clone(n.others)
	for _, each := range n.pods {
		if each.active {
			pods = append(pods, each.pod)
		}
	}
	return pods
}

func (n *node) find(uid string) *known {
	for _, each := range n.pods {
		if string(each.pod.UID) == uid {
			return each
		}
	}
	return nil
}

func (n *node) remove(uid string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.pods = slices.DeleteFunc(n.pods, func(each *known) bool { return string(each.pod.UID) == uid })
}

func (n *node) admit(of *Pod) (*known, Verdict) {
	each := &known{pod: makePod(of), active: true, running: newNames()}
	n.mutex.Lock()
	n.pods = append(n.pods, each)
	n.mutex.Unlock()
	return each, n.decide(each)
}

// decide admits a pod as the kubelet does: the topology manager first, then the predicates.
func (n *node) decide(each *known) Verdict {
	others := []*v1.Pod{}
	for _, pod := range n.activePods() {
		if pod.UID != each.pod.UID {
			others = append(others, pod)
		}
	}
	attributes := &lifecycle.PodAdmitAttributes{Pod: each.pod, OtherPods: others}
	for _, handler := range []lifecycle.PodAdmitHandler{n.topology, n.predicate} {
		if result := admitted(handler, attributes); !result.Admit {
			n.mutex.Lock()
			each.active = false
			n.mutex.Unlock()
			return Verdict{false, result.Reason, result.Message}
		}
	}
	return Verdict{Admit: true}
}

// status returns the Node object with the manager's capacity.
func (n *node) status() *v1.Node {
	capacity, allocatable, _ := capacities(n.manager)
	for _, list := range []v1.ResourceList{capacity, allocatable} {
		list[v1.ResourceCPU] = resource.MustParse("1000")
		list[v1.ResourceMemory] = resource.MustParse("1Ti")
		list[v1.ResourcePods] = resource.MustParse("1000")
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status:     v1.NodeStatus{Capacity: capacity, Allocatable: allocatable},
	}
}

// startPod starts all containers of a pod and returns the options or error of each.
func (n *node) startPod(each *known) map[string]any {
	started := map[string]any{}
	inits := len(each.pod.Spec.InitContainers)
	for i, container := range allContainers(each.pod) {
		options, err := runOptions(n.manager, each.pod, &container)
		if err != nil {
			started[container.Name] = map[string]string{"error": err.Error()}
			continue
		}
		started[container.Name] = plainOptions(options)
		if i >= inits || isRestartable(&container) {
			each.running.Insert(container.Name)
		}
	}
	return started
}

func allContainers(pod *v1.Pod) []v1.Container {
	return append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
}

// -- plugins -----------------------------------------------------------------------------

func (n *node) register(r *Registration) (string, error) {
	before := n.plugins[r.Resource]
	n.names++
	socket := fmt.Sprintf("plugin-%d.sock", n.names)
	if r.SameSocket && before != nil {
		socket = before.socket
	}
	p, err := serve(n.dir, r.Resource, socket, &r.Plugin, &n.log)
	if err != nil {
		return "", err
	}
	if text := p.register(filepath.Join(n.dir, "kubelet.sock"), r.Version); text != "" {
		p.stop()
		return text, nil
	}
	if before != nil {
		n.old[r.Resource] = append(n.old[r.Resource], before)
	}
	n.plugins[r.Resource] = p
	if r.Devices == nil {
		return "", nil
	}
	return "", n.list(p, r.Devices)
}

// list sends a list and waits until the manager has processed it, which writes the checkpoint.
// It does nothing if the kubelet has disconnected the plugin.
func (n *node) list(p *served, devices []Device) error {
	if p.isGone() {
		return nil
	}
	before := n.written()
	p.send(devices)
	return wait(func() bool { return n.written() != before },
		"the manager did not process a list of "+p.resource)
}

// leave stops a plugin and waits until the manager has noticed.
func (n *node) leave(p *served) error {
	_, allocatable, _ := capacities(n.manager)
	healthy := allocatable[v1.ResourceName(p.resource)]
	p.stop()
	if healthy.IsZero() || (severalPlugins && len(n.old[p.resource]) > 0) {
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	return wait(func() bool {
		_, allocatable, _ := capacities(n.manager)
		healthy := allocatable[v1.ResourceName(p.resource)]
		return healthy.IsZero()
	}, "the manager did not notice that a plugin of "+p.resource+" disconnected")
}

// leaveOld stops the plugin that was replaced last. Because of a bug in all releases here
// (k/k#121994), the kubelet then disconnects the plugin that replaced it.
func (n *node) leaveOld(resource string) error {
	plugins := n.old[resource]
	if len(plugins) == 0 { // the plugin that was to replace it was rejected
		return nil
	}
	p := plugins[len(plugins)-1]
	n.old[resource] = plugins[:len(plugins)-1]
	if p.isGone() { // the kubelet disconnected it earlier, so this has no effect on others
		p.stop()
		return nil
	}
	if severalPlugins && n.plugins[resource] != nil {
		p.stop()
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	if err := n.leave(p); err != nil || severalPlugins {
		return err
	}
	return wait(n.plugins[resource].isGone, "the kubelet did not disconnect the new plugin of "+resource)
}

func wait(done func() bool, what string) error {
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s", what)
		}
	}
	return nil
}

// written identifies the checkpoint file, which each write replaces.
func (n *node) written() string {
	info, err := os.Stat(filepath.Join(n.dir, checkpointName))
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size(), inode(info))
}
