package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// hangLimit is the deadline of a call that hangs, instead of 45 seconds.
const hangLimit = 60 * time.Millisecond

func (n *node) run(op *Op) (Result, error) {
	switch op.Op {
	case "start", "restart":
		return n.start()
	case "file":
		return Result{}, n.replaceFile(op.File)
	case "register":
		return n.register(op)
	case "deregister":
		return Result{}, n.deregister(n.drivers[op.Instance])
	case "stop":
		d := n.drivers[op.Instance]
		if err := n.withoutStreams(d, d.stop); err != nil {
			return nil, err
		}
		return Result{}, n.settled(d)
	case "listen":
		if err := n.drivers[op.Instance].listen(); err != nil {
			return nil, err
		}
		return Result{}, n.settled(n.drivers[op.Instance])
	case "behave":
		n.behave(op)
	case "claim":
		n.server.claims[op.Claim.Namespace+"/"+op.Claim.Name] = op.Claim
	case "delete_claim":
		delete(n.server.claims, op.Namespace+"/"+op.Name)
	case "api_error":
		n.server.fail(op)
	case "pod":
		pod, err := makePod(op.Set)
		n.pods[op.Pod] = pod
		return Result{}, err
	case "disk":
		n.disk.failures, n.disk.message = op.Times, op.Message
	case "prepare", "unprepare":
		return n.pod(op), nil
	case "container":
		return n.container(op), nil
	case "pod_resources":
		return n.podResources(op), nil
	case "might_need_unprepare":
		return Result{"answer": n.kubelet.manager.PodMightNeedToUnprepareResources(n.pods[op.Pod].UID)}, nil
	case "reconcile":
		n.limit(unprepareMethod)
		n.reconcile(op)
	case "advance":
		return Result{}, n.advance(op.Seconds)
	case "sleep":
		n.kubelet.ageHealth(seconds(op.Seconds))
	case "health":
		return n.report(op)
	case "end_stream":
		return Result{}, n.endStream(n.drivers[op.Instance])
	case "status":
		return Result{"status": n.kubelet.status(n.pods[op.Pod])}, nil
	case "begin":
		return n.begin(op), nil
	case "end":
		n.running[op.Name].release()
		return orEmpty(n.finished(n.running[op.Name])), nil
	default:
		return nil, fmt.Errorf("unknown operation %q", op.Op)
	}
	return Result{}, nil
}

func seconds(amount float64) time.Duration { return time.Duration(amount * float64(time.Second)) }

func (n *node) behave(op *Op) {
	d := n.drivers[op.Instance]
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if op.Prepare != nil {
		d.behaviour[prepareMethod] = op.Prepare
	}
	if op.Unprepare != nil {
		d.behaviour[unprepareMethod] = op.Unprepare
	}
}

func orEmpty(result Result) Result {
	if result == nil {
		return Result{}
	}
	return result
}

func failed(err error) Result {
	if err != nil {
		return Result{"error": err.Error()}
	}
	return Result{}
}

// limit sets the deadlines of the next calls.
func (n *node) limit(method string) {
	for _, d := range n.drivers {
		d.mutex.Lock()
		hangs := d.behaviour[method].Hang
		d.mutex.Unlock()
		limit := 45 * time.Second
		if hangs {
			limit = hangLimit
		}
		n.kubelet.limit(d, limit)
	}
}

func (n *node) pod(op *Op) Result {
	pod := n.pods[op.Pod]
	if op.Op == "prepare" {
		n.limit(prepareMethod)
		return failed(n.kubelet.manager.PrepareResources(context.Background(), pod))
	}
	n.limit(unprepareMethod)
	return failed(n.kubelet.manager.UnprepareResources(context.Background(), pod))
}

// begin starts an operation that may block in a driver.
func (n *node) begin(op *Op) Result {
	begun := &running{done: make(chan Result, 1)}
	n.running[op.Name] = begun
	go func() {
		defer func() {
			if r := recover(); r != nil {
				begun.done <- Result{"error": fmt.Sprint("panic: ", r)}
			}
		}()
		begun.done <- n.pod(op.Do)
	}()
	return n.finished(begun)
}

func (n *node) finished(begun *running) Result {
	select {
	case call := <-n.blocked:
		begun.blocked = &call
		return Result{"blocked_in": call.instance}
	case result, isFirst := <-begun.done:
		if isFirst {
			close(begun.done) // a further end has no result
		}
		return result
	}
}

func (n *node) container(op *Op) Result {
	pod := n.pods[op.Pod]
	found, err := n.kubelet.manager.GetResources(pod, containerOf(pod, op.Container))
	if err != nil {
		return failed(err)
	}
	ids := []string{}
	for _, device := range found.CDIDevices {
		ids = append(ids, device.Name)
	}
	return Result{"cdi": ids}
}

func containerOf(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for number := range list {
			if list[number].Name == name {
				return &list[number]
			}
		}
	}
	return &v1.Container{}
}

// podResources converts the claims of a container as the kubelet's container manager does
// (GetDynamicResources), which cannot be created here. It has the same growing lists.
func (n *node) podResources(op *Op) Result {
	pod := n.pods[op.Pod]
	infos, err := n.kubelet.manager.GetContainerClaimInfos(pod, containerOf(pod, op.Container))
	if err != nil {
		return failed(err)
	}
	listed := []object{}
	for _, info := range infos {
		resources := []object{}
		for driver, state := range info.DriverState {
			ids := []string{}
			for _, device := range state.Devices {
				ids = append(ids, device.CDIDeviceIDs...)
				resource := object{
					"driver_name": driver, "pool_name": device.PoolName, "device_name": device.DeviceName,
					"cdi_devices": slices.Clone(ids),
				}
				if id := shareOf(device); id != nil {
					resource["share_id"] = *id
				}
				resources = append(resources, resource)
			}
		}
		listed = append(listed, object{
			"claim_name": info.ClaimName, "claim_namespace": info.Namespace, "claim_resources": resources,
		})
	}
	return Result{"dynamic_resources": listed}
}

func (n *node) reconcile(op *Op) {
	active := []*v1.Pod{}
	for _, key := range op.Active {
		active = append(active, n.pods[key])
	}
	n.kubelet.active = active
	n.kubelet.sources.ready.Store(!op.NotReady)
	reconcileLoop(n.kubelet.manager, context.Background())
	n.kubelet.sources.ready.Store(false)
}

func (n *node) register(op *Op) (Result, error) {
	d := n.drivers[op.Instance]
	offered := d.spec.Services
	if op.Services != nil {
		offered = *op.Services
	}
	if err := n.kubelet.handler.validate(d.spec.Driver, d.socket, offered); err != nil {
		return Result{"error": err.Error(), "stage": "validate"}, nil
	}
	if err := n.kubelet.handler.register(d.spec.Driver, d.socket, offered); err != nil {
		return Result{"error": err.Error(), "stage": "register"}, nil
	}
	d.registered, d.isWatched = offered, false
	return Result{}, n.settled(d)
}

func (n *node) deregister(d *driver) error {
	wipes := n.kubelet.wipesAtOnce(d)
	d.registered = nil
	err := n.withoutStreams(d, func() { n.kubelet.handler.deregister(d.spec.Driver, d.socket) })
	if err != nil {
		return err
	}
	return wait(func() bool { return n.countWipes() >= wipes }, "the slices of a driver are not wiped")
}

// settled waits until the kubelet has noticed the state of an instance.
func (n *node) settled(d *driver) error {
	if err := n.kubelet.connection(d); err != nil {
		return err
	}
	return n.kubelet.health(d)
}

func (n *node) advance(amount float64) error {
	due := n.clock.advance(seconds(amount))
	return wait(func() bool { return n.countWipes() >= due }, "slices that are due are not wiped")
}

func (n *node) report(op *Op) (Result, error) {
	for _, stream := range n.drivers[op.Instance].streams() {
		before := n.kubelet.streams.processed.Load()
		select {
		case stream.reports <- reportOf(op.Devices):
		case <-stream.ended:
			continue
		}
		processed := func() bool { return n.kubelet.streams.processed.Load() > before }
		if err := wait(processed, "the kubelet does not process a health report"); err != nil {
			return nil, err
		}
	}
	return Result{"updates": n.kubelet.updates()}, nil
}

func (n *node) endStream(d *driver) error {
	return n.withoutStreams(d, func() {
		for _, stream := range d.streams() {
			close(stream.reports)
		}
	})
}

// withoutStreams does what ends the health streams of an instance, and waits for their end.
func (n *node) withoutStreams(d *driver, act func()) error {
	left := n.served() - int64(len(d.streams()))
	act()
	return wait(func() bool { return n.served() == left && n.kubelet.streams.open.Load() == left }, "a health stream does not end")
}

// served counts the health streams that the drivers serve.
func (n *node) served() int64 {
	count := 0
	for d := range maps.Values(n.drivers) {
		count += len(d.streams())
	}
	return int64(count)
}

// key names a claim.
func key(namespace, name string) string { return strings.Join([]string{namespace, name}, "/") }
