package mockkubelet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const claimedPod = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: default}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.example.com}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims:
  - {name: gpu, resourceClaimName: gpu}
  containers:
  - {name: main, image: x, resources: {claims: [{name: gpu}]}}
`

func TestPodWithClaimRunsAndEnds(t *testing.T) {
	dra := StartDRA(t, "--simulate-driver", "gpu.example.com=2")
	dra.WaitForDriver("gpu.example.com")
	dra.Create(claimedPod)
	dra.WaitForPod("default", "train", "Running")
	claim := dra.Claim("default", "gpu")
	if claim.State != "prepared" || len(claim.Devices) != 1 || claim.Devices[0].Device != "gpu-0" {
		t.Errorf("%+v", claim)
	}
	list, err := dra.Client.ResourceClaims(context.Background())
	if err != nil || len(list.Items) != 1 {
		t.Errorf("claims: %v %+v", err, list)
	}
	results, err := dra.Client.PrepareClaims(context.Background(), DriverCall{
		Driver: "gpu.example.com", Claims: []string{"default/gpu"},
	})
	if err != nil || results.Claims[claim.UID].Error != "" {
		t.Errorf("prepare: %v %+v", err, results)
	}
	dra.DeletePod("default", "train")
	// The claim controller deallocates the claim afterwards.
	if claim := dra.Claim("default", "gpu"); claim.Held || len(claim.Pods) != 0 {
		t.Errorf("after the deletion: %+v", claim)
	}
}

func TestClaimIsKeptOverARestart(t *testing.T) {
	dra := StartDRA(t, "--simulate-driver", "gpu.example.com=2")
	dra.WaitForDriver("gpu.example.com")
	dra.Create(claimedPod)
	dra.WaitForPod("default", "train", "Running")
	dra.Restart()
	if claim := dra.Claim("default", "gpu"); claim.State != ClaimStatePrepared {
		t.Errorf("after the restart: %s: %s", claim.State, claim.Text)
	}
}

func TestFailedCallIsRetriedByResync(t *testing.T) {
	dra := StartDRA(t, "--simulate-driver", "gpu.example.com=2")
	dra.WaitForDriver("gpu.example.com")
	dra.Fault("fail-call:rpc=NodePrepareResources,when=after,times=1")
	dra.Create(claimedPod)
	dra.WaitForEvent(EventWait{Kinds: []string{"prepare-failed"}})
	dra.ResyncPod("default", "train")
	dra.WaitForPod("default", "train", "Running", time.Minute)
}

// recorder is a test that records its failures instead of failing.
type recorder struct {
	*testing.T
	text string
}

func (r *recorder) Fatalf(format string, values ...any) {
	r.text = fmt.Sprintf(format, values...)
	runtime.Goexit()
}

// failureOf returns the failure of an action of d.
func failureOf(t *testing.T, d *DRA, act func(*DRA)) string {
	t.Helper()
	recorded, done := &recorder{T: t}, make(chan struct{})
	go func() {
		defer close(done)
		kubelet := &Kubelet{Client: d.Client, t: recorded, root: d.root}
		act(&DRA{Kubelet: kubelet, API: d.API})
	}()
	<-done
	return recorded.text
}

func TestWaitsSayWhatIsMissing(t *testing.T) {
	dra := StartDRA(t)
	noPod := failureOf(t, dra, func(d *DRA) { d.WaitForPod("default", "train", "Running", 0) })
	noDriver := failureOf(t, dra, func(d *DRA) { d.WaitForDriver("gpu.example.com", 0) })
	dra.Create(claimedPod)
	other := failureOf(t, dra, func(d *DRA) { d.WaitForPod("default", "trian", "Running", 0) })
	dra.watchPod("default", "train", "to have a condition", time.Minute, func(_ string, pod podStatus) bool {
		return len(pod.Status.Conditions) > 0
	})
	noClass := failureOf(t, dra, func(d *DRA) { d.WaitForPod("default", "train", "Running", 0) })
	resync := failureOf(t, dra, func(d *DRA) { d.ResyncPod("default", "train") })
	for text, parts := range map[string][]string{
		noPod:    {"waited 0s for pod default/train to be Running; pod default/train does not exist: create"},
		noDriver: {"waited 0s for DRA driver gpu.example.com", "no socket is in " + dra.RegistrarDir()},
		other:    {"pod default/trian does not exist; pods in this namespace: train"},
		noClass:  {"it is Pending\n  PodScheduled is False: Unschedulable: ", "dra explain --kubeconfig"},
		resync:   {"no pod has the UID"},
	} {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in %q", part, text)
			}
		}
	}
}

func TestWaitsNameOtherDriversAndTheNextTry(t *testing.T) {
	dra := StartDRA(t, "--simulate-driver", "gpu.example.com=2")
	dra.WaitForDriver("gpu.example.com")
	dra.Fault("fail-call:rpc=NodePrepareResources")
	dra.Create(claimedPod)
	dra.WaitForEvent(EventWait{Kinds: []string{"prepare-failed"}})
	typo := failureOf(t, dra, func(d *DRA) { d.WaitForDriver("gpu.exmaple.com", 0) })
	for _, part := range []string{"registered: gpu.example.com, endpoint ", "kubeletplugin.DriverName"} {
		if !strings.Contains(typo, part) {
			t.Errorf("no %q in %q", part, typo)
		}
	}
	pods, err := dra.pods("default", "train")
	if err != nil {
		t.Fatal(err)
	}
	for { // the kubelet sets the time of the next try after the event
		found, err := dra.Client.ExplainClaims(context.Background(), pods.Items[0].Metadata.UID)
		if err != nil {
			t.Fatal(err)
		}
		if found.RetryIn != nil {
			break
		}
	}
	failed := failureOf(t, dra, func(d *DRA) { d.WaitForPod("default", "train", "Running", 0) })
	for _, part := range []string{
		"claim gpu: prepare-failed: ", "failed: prepare dynamic resources: ", "ResyncPod retries at once",
	} {
		if !strings.Contains(failed, part) {
			t.Errorf("no %q in %q", part, failed)
		}
	}
	dra.ClearFaults()
}

func TestMissingExtraFailsAtOnce(t *testing.T) {
	command := filepath.Join(t.TempDir(), "devicemanager")
	script := `#!/bin/sh
echo '{"kind": "cel-unavailable", "warning": true, "message": "install claims"}'
echo '{"kind": "ready"}'
exec sleep 60
`
	if err := os.WriteFile(command, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DEVICEMANAGER", command)
	recorded, done := &recorder{T: t}, make(chan struct{})
	go func() {
		defer close(done)
		StartDRA(recorded)
	}()
	<-done
	if recorded.text != "mock kubelet: install claims" {
		t.Error(recorded.text)
	}
}

func TestAddressesAndDirectories(t *testing.T) {
	dra := StartDRA(t)
	response, err := http.Get(dra.API.Host + "/api/v1/nodes/" + dra.NodeName())
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("node: %v %v", err, response)
	}
	_ = response.Body.Close()
	for _, path := range []string{dra.RegistrarDir(), dra.DataDir("gpu.example.com"), dra.CDIDir()} {
		if entry, err := os.Stat(path); err != nil || !entry.IsDir() {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Stat(dra.API.Kubeconfig); err != nil {
		t.Error(err)
	}
	if _, err := dra.request("GET", "/api/v1/nodes/unknown", "", nil); err == nil ||
		err.Error() != `nodes "unknown" not found` {
		t.Errorf("unknown node: %v", err)
	}
}

func TestSocketsAreClosed(t *testing.T) {
	dra := StartDRA(t)
	path := filepath.Join(dra.DataDir("d"), "dra.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // left over by another driver
		t.Fatal(err)
	}
	listener, err := dra.Listen(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if closed := dra.CloseSocket(path); closed != 1 {
		t.Errorf("closed %d sockets", closed)
	}
	if _, err := listener.Accept(); err == nil {
		t.Error("a closed socket accepts connections")
	}
	if closed := dra.CloseSocket(""); closed != 0 {
		t.Errorf("closed %d sockets again", closed)
	}
}

func TestPathsOfObjects(t *testing.T) {
	for document, path := range map[string]string{
		"apiVersion: v1\nkind: Pod\nmetadata: {namespace: x}": "/api/v1/namespaces/x/pods",
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass":   "/apis/resource.k8s.io/v1/deviceclasses",
		"kind: Pod": "", "apiVersion: v1\nkind: Job": "",
	} {
		found, err := metaOf(document).path()
		if found != path || (err != nil) != (path == "") {
			t.Errorf("%q: %q %v", document, found, err)
		}
	}
}
