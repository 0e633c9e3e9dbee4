package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	mockkubelet "kubelet-devicemanager/clients/go"
)

const (
	driverName = "gpu.vendor.com"
	objects    = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.vendor.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
  containers: [{name: main, image: app, resources: {claims: [{name: gpu}]}}]
`
)

// client returns a client-go client of the API server.
func client(t *testing.T, api mockkubelet.APIConfig) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{Host: api.Host, BearerToken: api.BearerToken}
	config.CAData = api.CAData
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// start runs the driver in the test's process, and waits until it has registered and published.
func start(t *testing.T, dra *mockkubelet.DRA) (*driver, *kubeletplugin.Helper) {
	t.Helper()
	d := &driver{
		name: driverName, health: map[string]kubeletplugin.HealthStatus{},
		changed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	helper, err := kubeletplugin.Start(
		ctx, d,
		kubeletplugin.KubeClient(client(t, dra.API)),
		kubeletplugin.NodeName(dra.NodeName()),
		kubeletplugin.DriverName(driverName),
		kubeletplugin.RegistrarDirectoryPath(dra.RegistrarDir()),
		kubeletplugin.PluginDataDirectoryPath(dra.DataDir(driverName)),
		kubeletplugin.RegistrarListener(dra.Listen),
		kubeletplugin.PluginListener(dra.Listen),
	)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { helper.Stop(); cancel() })
	if err := helper.PublishResources(ctx, resources([]string{"gpu-0", "gpu-1"})); err != nil {
		t.Fatal(err)
	}
	dra.WaitForDriver(driverName)
	return d, helper
}

func TestPodGetsADeviceOfTheDriver(t *testing.T) {
	dra := mockkubelet.StartDRA(t)
	start(t, dra)
	dra.Create(strings.ReplaceAll(objects, "NAME", "train"))
	dra.WaitForPod("default", "train", "Running")
	claims, err := client(t, dra.API).ResourceV1().ResourceClaims("default").
		List(context.Background(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims: %v %+v", err, claims)
	}
	claim := dra.Claim("default", claims.Items[0].Name)
	wanted := fmt.Sprintf("vendor.com/gpu=%s-gpu-0", claim.UID)
	if len(claim.Devices) != 1 || claim.Devices[0].CDIDevices[0] != wanted {
		t.Errorf("%+v", claim)
	}
	dra.DeletePod("default", "train")
	if calls := dra.Calls(driverName, "NodeUnprepareResources"); len(calls) != 1 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestFailedCallIsRepeated(t *testing.T) {
	dra := mockkubelet.StartDRA(t, "--clock", "manual")
	start(t, dra)
	dra.Fault("fail-call:rpc=NodePrepareResources,when=after,times=1,plugin=dra.sock")
	dra.Create(strings.ReplaceAll(objects, "NAME", "train"))
	dra.WaitForEvent(mockkubelet.EventWait{Kinds: []string{"prepare-failed"}})
	if err := dra.Client.Advance(context.Background(), 60); err != nil {
		t.Fatal(err)
	}
	dra.WaitForPod("default", "train", "Running")
	if calls := dra.Calls(driverName, "NodePrepareResources"); len(calls) != 2 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestKilledDriverIsNoticed(t *testing.T) {
	dra := mockkubelet.StartDRA(t)
	start(t, dra)
	mark := dra.Mark()
	dra.CloseSocket(filepath.Join(dra.DataDir(driverName), "dra.sock"))
	dra.WaitForEvent(mockkubelet.EventWait{Kinds: []string{"driver-disconnected"}, After: &mark})
}
