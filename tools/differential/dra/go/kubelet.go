package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
)

// kubelet is a manager with what the kubelet gives it.
type kubelet struct {
	node    *node
	manager *manager
	handler handler
	sources *sources
	active  []*v1.Pod
	streams streams
	cancel  context.CancelFunc
}

// streams counts the health streams that the manager reads.
type streams struct {
	expected               int64
	begun, open, processed atomic.Int64
}

// failingStore passes the writes of the state file to the disk.
type failingStore struct {
	checkpointmanager.CheckpointManager
	disk *disk
}

func (s failingStore) CreateCheckpoint(key string, checkpoint checkpointmanager.Checkpoint) error {
	return s.disk.write(func() error { return s.CheckpointManager.CreateCheckpoint(key, checkpoint) })
}

func newKubelet(n *node) (*kubelet, error) {
	manager, err := newManager(&client{server: n.server}, n.dir)
	if err != nil {
		return nil, err
	}
	store := inside(manager, "cache", "checkpointer", "checkpointManager")
	below := store.Interface().(checkpointmanager.CheckpointManager)
	wrapped := checkpointmanager.CheckpointManager(failingStore{below, n.disk})
	setValue(store, wrapped)
	return &kubelet{node: n, manager: manager, sources: &sources{}}, nil
}

func (k *kubelet) prepared() []string {
	found := []string{}
	for _, info := range inside(k.manager, "cache", "claimInfo").Seq2() {
		if inside(info.Interface(), "prepared").Bool() {
			found = append(found, key(
				inside(info.Interface(), "Namespace").String(), inside(info.Interface(), "ClaimName").String(),
			))
		}
	}
	slices.Sort(found)
	return found
}

// connection waits until the kubelet's connection to an instance is as the instance.
func (k *kubelet) connection(d *driver) error {
	if d.registered == nil {
		return nil
	}
	listens := d.server != nil
	return wait(func() bool {
		conn, connected := k.connected(d)
		if conn == nil {
			return true
		}
		// It counts as connected a little before calls are possible.
		if connected == listens && (!listens || conn.GetState() == connectivity.Ready) {
			return true
		}
		if listens {
			// Otherwise gRPC waits a second and more.
			conn.ResetConnectBackoff()
		}
		return false
	}, fmt.Sprintf("the connection to %s does not change", d.key))
}

func (n *node) replaceFile(text *string) error {
	path := filepath.Join(n.dir, stateName)
	if text == nil {
		return os.RemoveAll(path)
	}
	return os.WriteFile(path, []byte(*text), 0o600)
}

// handler is the kubelet's handler of plugin registrations; signatures differ between releases.
type handler struct{ of any }

func (h handler) validate(name, socket string, services []string) error {
	switch of := h.of.(type) {
	case interface {
		ValidatePlugin(string, string, []string) error
	}:
		return of.ValidatePlugin(name, socket, services)
	case interface {
		ValidatePlugin(context.Context, string, string, []string) error
	}:
		return of.ValidatePlugin(context.Background(), name, socket, services)
	}
	panic("unknown signature of ValidatePlugin")
}

func (h handler) register(name, socket string, services []string) error {
	switch of := h.of.(type) {
	case interface {
		RegisterPlugin(string, string, []string, *time.Duration) error
	}:
		return of.RegisterPlugin(name, socket, services, nil)
	case interface {
		RegisterPlugin(context.Context, string, string, []string, *time.Duration) error
	}:
		return of.RegisterPlugin(context.Background(), name, socket, services, nil)
	}
	panic("unknown signature of RegisterPlugin")
}

func (h handler) deregister(name, socket string) {
	switch of := h.of.(type) {
	case interface{ DeRegisterPlugin(string) }:
		of.DeRegisterPlugin(name)
	case interface{ DeRegisterPlugin(string, string) }:
		of.DeRegisterPlugin(name, socket)
	case interface {
		DeRegisterPlugin(context.Context, string, string)
	}:
		of.DeRegisterPlugin(context.Background(), name, socket)
	default:
		panic("unknown signature of DeRegisterPlugin")
	}
}

// defaults has the default values of all gates that a scenario has set.
var defaults = map[string]bool{}

// setGates sets these gates, and all others to their defaults.
func setGates(gates map[string]bool) error {
	wanted, gates := maps.Clone(defaults), maps.Clone(gates)
	if value, isSet := gates["ResourceHealthStatus"]; isSet {
		gates["ResourceHealthStatusMessage"] = value // depends on it
	}
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	for name, value := range gates {
		feature := featuregate.Feature(name)
		// A kubelet ignores gates that it does not know.
		if _, exists := all[feature]; !exists {
			continue
		}
		if _, known := defaults[name]; !known {
			defaults[name] = utilfeature.DefaultFeatureGate.Enabled(feature)
		}
		wanted[name] = value
	}
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
}
