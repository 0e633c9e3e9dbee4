package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
)

const stateName = "dra_manager_state"

// node is a kubelet's DRA manager with its drivers, API server and state file.
type node struct {
	dir     string
	server  *server
	drivers map[string]*driver
	pods    map[string]*v1.Pod
	disk    *disk
	clock   *wipeClock
	blocked chan blockedCall
	running map[string]*running

	kubelet *kubelet // nil if it did not start

	mutex sync.Mutex
	calls []any
	wipes []string

	file     *string
	prepared []string
}

func newNode(scenario *Scenario, dir string) (*node, error) {
	n := &node{
		dir:      dir,
		drivers:  map[string]*driver{},
		pods:     map[string]*v1.Pod{},
		disk:     &disk{},
		blocked:  make(chan blockedCall),
		running:  map[string]*running{},
		prepared: []string{},
	}
	n.server = newServer(n)
	for _, name := range []string{stateName, "dra_health_state"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for key, each := range scenario.Pods {
		pod, err := makePod(each)
		if err != nil {
			return nil, err
		}
		n.pods[key] = pod
	}
	for key, spec := range scenario.Instances {
		d := &driver{
			node: n, key: key, spec: spec, socket: filepath.Join(dir, key),
			behaviour: map[string]*Behaviour{
				prepareMethod: or(spec.Prepare), unprepareMethod: or(spec.Unprepare),
			},
		}
		n.drivers[key] = d
		if !spec.Down {
			if err := d.listen(); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

func or(behaviour *Behaviour) *Behaviour {
	if behaviour == nil {
		return &Behaviour{}
	}
	return behaviour
}

// end stops everything.
func (n *node) end() {
	for _, each := range n.running {
		each.release()
	}
	if n.kubelet != nil {
		n.kubelet.stop()
	}
	for _, d := range n.drivers {
		d.stop()
	}
}

func (n *node) called(instance, version, method string, of []claim) {
	names := []string{}
	for _, each := range of {
		names = append(names, each.namespace+"/"+each.name+"/"+each.uid)
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.calls = append(n.calls, object{
		"instance": instance, "method": method, "version": version, "claims": names,
	})
}

// step runs an operation, and returns what it led to.
func (n *node) step(op *Op) (result Result, err error) {
	if n.kubelet == nil && !slices.Contains([]string{"start", "restart", "file", "claim", "behave"}, op.Op) {
		return Result{"error": "no manager"}, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = panicked{fmt.Sprint(r)}
		}
	}()
	n.mutex.Lock()
	n.calls, n.wipes = nil, nil
	n.mutex.Unlock()
	n.disk.writes.Store(0)
	if result, err = n.run(op); err != nil {
		return nil, err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	result["calls"], result["wipes"], result["writes"] = n.calls, n.wipes, n.disk.writes.Load()
	n.observe(result)
	return result, nil
}

// observe adds the file and the prepared claims, if they have changed.
func (n *node) observe(result Result) {
	file := (*string)(nil)
	if text, err := os.ReadFile(filepath.Join(n.dir, stateName)); err == nil {
		content := string(text)
		file = &content
	}
	if (file == nil) != (n.file == nil) || (file != nil && *file != *n.file) {
		result["file"], n.file = file, file
	}
	if n.kubelet == nil {
		return
	}
	if prepared := n.kubelet.prepared(); !slices.Equal(prepared, n.prepared) {
		result["prepared"], n.prepared = prepared, prepared
	}
}

// blockedCall is a call that waits in a driver.
type blockedCall struct {
	instance string
	released chan struct{}
}

// running is an operation that has begun.
type running struct {
	done    chan Result
	blocked *blockedCall
}

func (r *running) release() {
	if r.blocked != nil {
		close(r.blocked.released)
		r.blocked = nil
	}
}

// disk fails the next writes of the state file, and counts the others.
type disk struct {
	failures int
	message  string
	writes   atomic.Int64
}

func (d *disk) write(write func() error) error {
	if d.failures > 0 {
		d.failures--
		return fmt.Errorf("%s", d.message)
	}
	err := write()
	if err == nil {
		d.writes.Add(1)
	}
	return err
}

// sources are ready only during a run of the reconcile loop.
type sources struct {
	ready atomic.Bool
	asked atomic.Int64
}

func (*sources) AddSource(string) {}

func (s *sources) AllReady() bool {
	defer s.asked.Add(1)
	return s.ready.Load()
}

func wait(done func() bool, what string) error {
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("timeout: %s", what)
		}
	}
	return nil
}

func (n *node) countWipes() int {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return len(n.wipes)
}

func (n *node) start() (Result, error) {
	if n.kubelet != nil {
		n.kubelet.stop()
		n.kubelet = nil
		if err := wait(func() bool { return n.served() == 0 }, "a health stream does not end"); err != nil {
			return nil, err
		}
	}
	for _, d := range n.drivers {
		d.registered = nil
	}
	n.clock = &wipeClock{}
	kubelet, err := newKubelet(n)
	if err != nil {
		return Result{"error": err.Error()}, nil
	}
	n.kubelet = kubelet
	ctx, cancel := context.WithCancel(context.Background())
	kubelet.cancel = cancel
	if err := kubelet.start(ctx); err != nil {
		return nil, err
	}
	// The loop runs once at the start, when the sources are not ready.
	if err := wait(func() bool { return kubelet.sources.asked.Load() > 0 }, "no reconcile loop"); err != nil {
		return nil, err
	}
	return Result{}, wait(func() bool { return n.countWipes() == 1 }, "the slices of the node are not wiped")
}
