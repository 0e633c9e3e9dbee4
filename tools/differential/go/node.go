package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

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
	// retiring is true if the pod is deleted and its containers have not exited yet.
	retiring bool
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
	// admitting is the UID of the pod during whose admission another pod is admitted. The kubelet
	// admits one pod at a time, and its predicates count only pods that have been admitted.
	admitting types.UID

	mutex sync.Mutex // guards pods, which PodResources and the manager read concurrently
	pods  []*known
	// others are active pods that exist only in the checkpoint.
	others []*v1.Pod

	plugins map[string]*served
	// old has replaced plugins, because the kubelet does not close their connections.
	old   map[string][]*served
	names int
	seen  string
	// meanwhile is called once in the next Allocate, before it is answered.
	meanwhile func()
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
	if n.scenario.Checkpoint != nil {
		return os.WriteFile(filepath.Join(n.dir, checkpointName), n.scenario.Checkpoint, 0o600)
	}
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
	if n.scenario.Other != nil {
		addProvider(n.topology, provider{n.scenario.Other})
	}
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

func (n *node) restart(how *Restart) (map[string]Verdict, error) {
	containers, running := containermap.NewContainerMap(), newNames()
	for _, each := range n.pods {
		if how.Reboot {
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
	path := filepath.Join(n.dir, checkpointName)
	if how.Lost {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	if how.Checkpoint != nil {
		if err := os.WriteFile(path, how.Checkpoint, 0o600); err != nil {
			return nil, err
		}
	}
	n.seen = n.written()
	if err := n.start(containers, running); err != nil {
		return nil, err
	}
	for _, each := range how.Before {
		if _, err := n.register(each); err != nil {
			return nil, err
		}
	}
	verdicts := map[string]Verdict{}
	for _, each := range n.pods {
		if !each.active {
			continue
		}
		verdict := n.decide(each)
		verdicts[string(each.pod.UID)] = verdict
		if verdict.Admit && each.running.Len() == 0 && !each.retiring {
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
	if of.PodLevel {
		amounts := v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi"),
		}
		setPodLevel(pod, amounts)
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

// admitStep admits a pod, and during its first Allocate another one, if it has one.
func (n *node) admitStep(of *Pod, outcome *Outcome) error {
	n.mutex.Lock()
	n.pods = slices.DeleteFunc(n.pods, func(each *known) bool { return string(each.pod.UID) == of.UID })
	n.mutex.Unlock()
	crash := ""
	if of.Meanwhile != nil {
		n.admitting = types.UID(of.UID)
		n.meanwhile = func() {
			defer func() {
				if r := recover(); r != nil {
					crash = fmt.Sprint(r)
				}
			}()
			_, verdict := n.admit(of.Meanwhile)
			outcome.Meanwhile = &verdict
		}
	}
	each, verdict := n.admit(of)
	n.meanwhile, n.admitting = nil, ""
	if crash != "" {
		return panicked{crash}
	}
	outcome.Admit, outcome.Reason, outcome.Message = &verdict.Admit, verdict.Reason, verdict.Message
	if verdict.Admit {
		outcome.Affinity = n.affinity(each.pod)
	}
	return nil
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
		if pod.UID == each.pod.UID && !n.ready {
			break // after a restart, a kubelet has admitted only older pods so far
		}
		if pod.UID != each.pod.UID && pod.UID != n.admitting {
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

// capacity returns the devices of the node's status. There, allocatable begins as a copy of
// capacity (nodestatus.MachineInfo).
func (n *node) capacity() (v1.ResourceList, v1.ResourceList) {
	capacity, allocatable, _ := capacities(n.manager)
	for name, amount := range capacity {
		if _, isThere := allocatable[name]; !isThere {
			allocatable[name] = amount
		}
	}
	return capacity, allocatable
}

// status returns the Node object with the manager's capacity.
func (n *node) status() *v1.Node {
	capacity, allocatable := n.capacity()
	for _, list := range []v1.ResourceList{capacity, allocatable} {
		list[v1.ResourceCPU] = resource.MustParse("1000")
		list[v1.ResourceMemory] = resource.MustParse("1Ti")
		list[v1.ResourcePods] = resource.MustParse("1000")
		for name, amount := range n.scenario.Node {
			list[v1.ResourceName(name)] = resource.MustParse(amount)
		}
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
			if !n.ready && i < inits {
				break // after a restart, a kubelet starts nothing after a failed init container
			}
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

func (n *node) register(r *Registration) (Reply, error) {
	return n.join(r, func(p *served) Reply {
		return p.register(filepath.Join(n.dir, "kubelet.sock"), r.Version)
	})
}

// watch registers a plugin as the plugin watcher does when it finds a socket.
func (n *node) watch(r *Registration) (Reply, error) {
	return n.join(r, func(p *served) Reply {
		return watched(n.manager.GetWatcherHandler(), r, filepath.Join(n.dir, p.socket))
	})
}

// unwatchPlugin removes a plugin as the plugin watcher does when its socket is gone.
func (n *node) unwatchPlugin(resource string) error {
	p := n.plugins[resource]
	delete(n.plugins, resource)
	unwatched(n.manager.GetWatcherHandler(), resource, filepath.Join(n.dir, p.socket))
	p.stop()
	return n.settle()
}

func (n *node) join(r *Registration, connect func(*served) Reply) (Reply, error) {
	before := n.plugins[r.Resource]
	if r.Program != nil {
		p, err := n.program(r)
		if p != nil {
			n.plugins[r.Resource] = p
		}
		return Reply{}, err
	}
	n.names++
	socket := fmt.Sprintf("plugin-%d.sock", n.names)
	if r.SameSocket && before != nil {
		socket = before.socket
	}
	p, err := serve(n.dir, r.Resource, socket, &r.Plugin, n)
	if err != nil {
		return Reply{}, err
	}
	if reply := connect(p); reply.Text != "" {
		p.stop()
		reply.Text = strings.ReplaceAll(reply.Text, n.dir, "DIR/")
		return reply, n.settle()
	}
	if before != nil {
		n.old[r.Resource] = append(n.old[r.Resource], before)
	}
	n.plugins[r.Resource] = p
	if r.Devices == nil {
		return Reply{}, nil
	}
	return Reply{}, n.list(p, r.Devices)
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
	p.stop()
	return n.settle()
}

// leaveOld stops the plugin that was replaced last.
func (n *node) leaveOld(resource string) error {
	plugins := n.old[resource]
	if len(plugins) == 0 {
		return nil
	}
	n.old[resource] = plugins[:len(plugins)-1]
	return n.leave(plugins[len(plugins)-1])
}

// settle waits until the kubelet follows exactly the plugins that have an open stream. The end of
// one stream can close another one (k/k#121994), so this must stay true for a while.
func (n *node) settle() error {
	calm := 0
	return wait(func() bool {
		open := 0
		for _, p := range n.all() {
			if !p.isGone() {
				open++
			}
		}
		if followed() == open {
			calm++
		} else {
			calm = 0
		}
		time.Sleep(500 * time.Microsecond)
		return calm > 8
	}, "the kubelet did not notice the end of a stream")
}

func (n *node) all() []*served {
	found := slices.Collect(maps.Values(n.plugins))
	for _, plugins := range n.old {
		found = append(found, plugins...)
	}
	return found
}

var stacks = make([]byte, 1<<20)

// followed returns how many ListAndWatch streams the kubelet reads. Only its goroutines show it.
func followed() int {
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("v1beta1.(*server).runClient("))
}

// passes lets time pass for plugins that are away.
func passes(m *devicemanager.ManagerImpl, amount time.Duration) {
	endpoints := reflect.ValueOf(m).Elem().FieldByName("endpoints")
	for _, key := range endpoints.MapKeys() {
		endpoint := endpoints.MapIndex(key).FieldByName("e").Elem().Elem()
		stopped := (*time.Time)(unsafe.Pointer(endpoint.FieldByName("stopTime").UnsafeAddr()))
		if !stopped.IsZero() {
			*stopped = stopped.Add(-amount)
		}
	}
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
