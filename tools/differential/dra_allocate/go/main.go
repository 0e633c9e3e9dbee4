// Program main solves allocation problems with the structured allocator of a Kubernetes release.
//
// It reads one problem a line, in the format of tools.replay dra-allocate, and writes one outcome
// a line: {"results": [...]}, {"results": null} or {"error": "..."}. A search of more than
// searchLimit ends with {"slow": true}. With -bench N it solves each problem N times and writes
// the nanoseconds of one allocation instead.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const searchLimit = 3 * time.Second

// fieldsOf maps feature gates to fields of structured.Features. A release has some of them.
var fieldsOf = map[string][]string{
	"DRAAdminAccess":               {"AdminAccess"},
	"DRAConsumableCapacity":        {"ConsumableCapacity"},
	"DRADeviceBindingConditions":   {"DeviceBindingAndStatus", "DeviceBinding", "DeviceStatus"},
	"DRADerivedAttributes":         {"DerivedAttributes"},
	"DRADeviceCompatibilityGroups": {"CompatibilityGroups"},
	"DRADeviceTaints":              {"DeviceTaints"},
	"DRAFractionalCapacityRange":   {"FractionalCapacityRange"},
	"DRAListTypeAttributes":        {"ListTypeAttributes"},
	"DRAPartitionableDevices":      {"PartitionableDevices"},
	"DRAPrioritizedList":           {"PrioritizedList"},
}

type device struct {
	Driver           string                       `json:"driver"`
	Pool             string                       `json:"pool"`
	Device           string                       `json:"device"`
	ShareID          types.UID                    `json:"shareID"`
	ConsumedCapacity map[string]resource.Quantity `json:"consumedCapacity"`
}

type problem struct {
	Features []string `json:"features"`
	Node     struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"node"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   classes                      `json:"classes"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Allocated []device                     `json:"allocated"`
	Shared    []device                     `json:"shared"`
}

// classes implements structured.DeviceClassLister.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclass"}, name)
}

func (p *problem) features() structured.Features {
	var features structured.Features
	value := reflect.ValueOf(&features).Elem()
	for _, gate := range p.Features {
		for _, name := range fieldsOf[gate] {
			if field := value.FieldByName(name); field.IsValid() {
				field.SetBool(true)
			}
		}
	}
	return features
}

func (p *problem) celCache() *cel.Cache {
	var features cel.Features
	value := reflect.ValueOf(&features).Elem()
	for _, gate := range p.Features {
		for name, each := range map[string]string{
			"EnableConsumableCapacity": "DRAConsumableCapacity",
			"EnableListTypeAttributes": "DRAListTypeAttributes",
		} {
			if field := value.FieldByName(name); gate == each && field.IsValid() {
				field.SetBool(true)
			}
		}
	}
	return cel.NewCache(100, features)
}

func (p *problem) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, each := range p.Allocated {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(each.Driver, each.Pool, each.Device))
	}
	for _, each := range p.Shared {
		id := structured.MakeDeviceID(each.Driver, each.Pool, each.Device)
		share := each.ShareID
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
		if len(each.ConsumedCapacity) == 0 {
			continue
		}
		consumed := make(map[resourceapi.QualifiedName]resource.Quantity)
		for name, quantity := range each.ConsumedCapacity {
			consumed[resourceapi.QualifiedName(name)] = quantity
		}
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, consumed))
	}
	return state
}

func (p *problem) node() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Node.Name, Labels: p.Node.Labels}}
}

func (p *problem) allocator(ctx context.Context, cache *cel.Cache) (structured.Allocator, error) {
	return structured.NewAllocator(ctx, p.features(), p.state(), p.Classes, p.Slices, cache)
}

// solve returns the outcome of one problem. A panic is an outcome, too.
func (p *problem) solve() (outcome map[string]any) {
	defer func() {
		if cause := recover(); cause != nil {
			outcome = map[string]any{"panic": fmt.Sprint(cause)}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), searchLimit)
	defer cancel()
	allocator, err := p.allocator(ctx, p.celCache())
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	results, err := allocator.Allocate(ctx, p.node(), p.Claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return map[string]any{"slow": true}
	case err != nil:
		return map[string]any{"error": err.Error()}
	case results == nil:
		return map[string]any{"results": nil}
	}
	normalize(results)
	return map[string]any{"results": results}
}

// normalize numbers the shares and writes quantities in their canonical text.
func normalize(results []resourceapi.AllocationResult) {
	number := 0
	for _, result := range results {
		for index := range result.Devices.Results {
			device := &result.Devices.Results[index]
			if device.ShareID != nil {
				number++
				device.ShareID = share(number)
			}
			for name, quantity := range device.ConsumedCapacity {
				// Adding zero drops the cached text of the quantity.
				quantity.Add(resource.Quantity{})
				device.ConsumedCapacity[name] = quantity
			}
		}
	}
}

func share(number int) *types.UID {
	id := types.UID(fmt.Sprintf("share-%d", number))
	return &id
}

// measure returns the nanoseconds of one allocation, with compiled selectors.
func (p *problem) measure(times int) map[string]any {
	ctx, cache, state := context.Background(), p.celCache(), p.state()
	var total time.Duration
	for range times {
		begin := time.Now()
		allocator, err := structured.NewAllocator(ctx, p.features(), state, p.Classes, p.Slices, cache)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		if _, err := allocator.Allocate(ctx, p.node(), p.Claims); err != nil {
			return map[string]any{"error": err.Error()}
		}
		total += time.Since(begin)
	}
	return map[string]any{"nanoseconds": total.Nanoseconds() / int64(times)}
}

func main() {
	times := flag.Int("bench", 0, "measure this many allocations of each problem")
	flag.Parse()
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var each problem
		if err := decoder.Decode(&each); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		outcome := map[string]any{}
		if *times > 0 {
			outcome = each.measure(*times)
		} else {
			outcome = each.solve()
		}
		if err := out.Encode(outcome); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
