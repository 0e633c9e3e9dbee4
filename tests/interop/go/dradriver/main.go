// Command dradriver is a DRA driver with virtual devices on the published Go library
// k8s.io/dynamic-resource-allocation/kubeletplugin.
//
// See README.md beside the parent module's go.mod for its events and commands.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"kubelet-devicemanager/tests/interop/go/internal/lines"
)

// driver prepares claims without doing anything, and reports each call.
type driver struct {
	name string

	mu      sync.Mutex
	health  map[string]kubeletplugin.HealthStatus // by device
	changed chan struct{}
}

func (d *driver) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	uids := []string{}
	for _, claim := range claims {
		uids = append(uids, string(claim.UID))
		var devices []kubeletplugin.Device
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != d.name {
				continue
			}
			devices = append(devices, kubeletplugin.Device{
				Requests:     []string{result.Request},
				PoolName:     result.Pool,
				DeviceName:   result.Device,
				CDIDeviceIDs: []string{"vendor.com/gpu=" + string(claim.UID) + "-" + result.Device},
			})
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	lines.Emit("prepare", lines.Fields{"claims": uids})
	return results, nil
}

func (d *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	uids := []string{}
	for _, claim := range claims {
		uids = append(uids, string(claim.UID))
		results[claim.UID] = nil
	}
	lines.Emit("unprepare", lines.Fields{"claims": uids})
	return results, nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	lines.Emit("error", lines.Fields{"message": message, "error": err.Error()})
}

func (d *driver) WatchHealthStatus(
	ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport,
) error {
	for {
		report, changed := d.report()
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (d *driver) report() (kubeletplugin.DeviceHealthReport, chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	report := kubeletplugin.DeviceHealthReport{}
	for device, health := range d.health {
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
			PoolName: "pool", DeviceName: device, Health: health,
		})
	}
	return report, d.changed
}

func (d *driver) setHealth(device, health string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health[device] = kubeletplugin.HealthStatus(health)
	close(d.changed)
	d.changed = make(chan struct{})
}

// resources returns one pool with the devices of these names.
func resources(names []string) resourceslice.DriverResources {
	var devices []resourceapi.Device
	for _, name := range names {
		devices = append(devices, resourceapi.Device{Name: name})
	}
	slice := resourceslice.Slice{Devices: devices}
	return resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{"pool": {Slices: []resourceslice.Slice{slice}}},
	}
}

// runCommands executes the commands on stdin, until its end or quit.
func (d *driver) runCommands(ctx context.Context, helper *kubeletplugin.Helper, stop func()) {
	defer stop()
	for words := range lines.Commands(os.Stdin) {
		switch {
		case words[0] == "publish" && len(words) == 2:
			if err := helper.PublishResources(ctx, resources(lines.List(words[1]))); err != nil {
				d.HandleError(ctx, err, "publish")
			}
		case words[0] == "health" && len(words) == 3:
			d.setHealth(words[1], words[2])
		case words[0] == "status":
			status := helper.RegistrationStatus()
			lines.Emit("status", lines.Fields{"registered": status != nil && status.PluginRegistered})
		case words[0] == "quit":
			return
		default:
			lines.Emit("bad-command", lines.Fields{"words": words})
		}
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "file for the API server")
	node := flag.String("node", "node-1", "name of the Node")
	name := flag.String("driver", "gpu.vendor.com", "name of the driver")
	registrar := flag.String("registrar", "", "the kubelet's directory for registration sockets")
	data := flag.String("data", "", "the driver's own directory")
	uid := flag.String("uid", "", "the pod's UID, for rolling updates")
	devices := flag.String("devices", "gpu-0,gpu-1", "devices to publish")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	d := &driver{
		name: *name, health: map[string]kubeletplugin.HealthStatus{}, changed: make(chan struct{}),
	}
	for _, device := range lines.List(*devices) {
		d.health[device] = kubeletplugin.HealthStatusHealthy
	}
	options := []kubeletplugin.Option{
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(*node),
		kubeletplugin.DriverName(*name),
		kubeletplugin.RegistrarDirectoryPath(*registrar),
		kubeletplugin.PluginDataDirectoryPath(*data),
	}
	if *uid != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(*uid)))
	}
	helper, err := kubeletplugin.Start(ctx, d, options...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	lines.Emit("started", nil)
	go d.runCommands(ctx, helper, stop)
	err = helper.PublishResources(ctx, resources(lines.List(*devices)))
	// A signal also ends the first synchronization with the API server.
	if err != nil && ctx.Err() == nil {
		return err
	}
	lines.Emit("publishing", nil)
	<-ctx.Done()
	lines.Emit("ended", nil)
	return nil
}

func main() {
	if err := run(); err != nil {
		lines.Emit("failed", lines.Fields{"error": err.Error()})
		os.Exit(1)
	}
}
