package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	mockkubelet "kubelet-devicemanager/clients/go"
)

// docs/go-author.md shows start and TestPodGetsADevice.

const (
	driverName = "gpu.vendor.com"
	objects    = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.vendor.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
  containers: [{name: main, image: app, resources: {claims: [{name: gpu}]}}]
`
)

func newDriver() *driver {
	return &driver{
		name: driverName, health: map[string]kubeletplugin.HealthStatus{},
		changed: make(chan struct{}),
	}
}

func start(t *testing.T, dra *mockkubelet.DRA) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{Host: dra.API.Host, BearerToken: dra.API.BearerToken}
	config.CAData = dra.API.CAData
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	helper, err := kubeletplugin.Start(
		t.Context(), newDriver(),
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(dra.NodeName()),
		kubeletplugin.DriverName(driverName),
		kubeletplugin.RegistrarDirectoryPath(dra.RegistrarDir()),
		kubeletplugin.PluginDataDirectoryPath(dra.DataDir(driverName)),
		kubeletplugin.RegistrarListener(dra.Listen),
		kubeletplugin.PluginListener(dra.Listen),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(helper.Stop)
	if err := helper.PublishResources(t.Context(), resources([]string{"gpu-0", "gpu-1"})); err != nil {
		t.Fatal(err)
	}
	dra.WaitForDriver(driverName)
	return client
}

func TestPodGetsADevice(t *testing.T) {
	dra := mockkubelet.StartDRA(t)
	start(t, dra)
	dra.Create(objects)
	dra.WaitForPod("default", "train", "Running")
	claim := dra.Claim("default", "gpu")
	if claim.State != mockkubelet.ClaimStatePrepared || claim.Devices[0].Device != "gpu-0" {
		t.Errorf("%s: %s", claim.State, claim.Text)
	}
	dra.DeletePod("default", "train")
}

func TestFailedCallIsRetried(t *testing.T) {
	dra := mockkubelet.StartDRA(t)
	start(t, dra)
	dra.Fault("fail-call:rpc=NodePrepareResources,when=after,times=1")
	dra.Create(objects)
	dra.WaitForEvent(mockkubelet.EventWait{Kinds: []string{"prepare-failed"}})
	dra.ResyncPod("default", "train")
	dra.WaitForPod("default", "train", "Running")
}

func TestClaimIsTheOneOfTheAPIServer(t *testing.T) {
	dra := mockkubelet.StartDRA(t)
	client := start(t, dra)
	dra.Create(objects)
	dra.WaitForPod("default", "train", "Running")
	stored, err := client.ResourceV1().ResourceClaims("default").
		Get(context.Background(), "gpu", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim := dra.Claim("default", "gpu")
	wanted := fmt.Sprintf("vendor.com/gpu=%s-gpu-0", stored.UID)
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
	dra.Create(objects)
	dra.WaitForEvent(mockkubelet.EventWait{Kinds: []string{"prepare-failed"}})
	// The kubelet plans the retry after the event.
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(dra.Claim("default", "gpu").Text, "tries again") {
		if time.Now().After(deadline) {
			t.Fatal("the kubelet plans no retry")
		}
		time.Sleep(10 * time.Millisecond)
	}
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
