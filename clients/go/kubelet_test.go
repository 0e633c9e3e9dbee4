package mockkubelet

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: train, uid: train}
spec:
  containers:
  - name: main
    image: x
    resources: {limits: {vendor.com/gpu: 2}}
`

func TestPodKeepsDevicesAfterRestart(t *testing.T) {
	kubelet := Start(t, "--simulate", "vendor.com/gpu=2")
	kubelet.WaitForResource("vendor.com/gpu", 2)
	admission := kubelet.Admit(pod)
	if !admission.Admitted {
		t.Fatalf("rejected: %s", admission.Message)
	}
	ids := admission.Containers["main"].Devices["vendor.com/gpu"]
	if len(ids) != 2 {
		t.Errorf("devices: %v", ids)
	}
	other := kubelet.Admit(strings.ReplaceAll(pod, "train", "other"))
	if other.Admitted || other.Reason != "UnexpectedAdmissionError" {
		t.Errorf("second pod: %+v", other)
	}
	if calls := kubelet.Calls("vendor.com/gpu", "Allocate"); len(calls) != 1 {
		t.Errorf("%d calls of Allocate", len(calls))
	}
	kubelet.Restart()
	kubelet.WaitForResource("vendor.com/gpu", 2)
	for _, device := range kubelet.Devices("vendor.com/gpu") {
		if device.Pod == nil || *device.Pod != "train" {
			t.Errorf("after the restart: %+v", device)
		}
	}
	kubelet.Delete("train")
	if !kubelet.Admit(strings.ReplaceAll(pod, "train", "third")).Admitted {
		t.Error("the devices of a deleted pod are not free")
	}
}

func TestFaultsAreInjectedAndCleared(t *testing.T) {
	kubelet := Start(t, "--simulate", "vendor.com/gpu=1")
	kubelet.Fault("fail-call:rpc=Allocate,text=not today")
	rejected := kubelet.Admit(strings.ReplaceAll(pod, "gpu: 2", "gpu: 1"))
	if rejected.Admitted || !strings.Contains(rejected.Message, "not today") {
		t.Errorf("%+v", rejected)
	}
	kubelet.ClearFaults()
	if _, err := kubelet.Client.SetFault(context.Background(), "nonsense"); err == nil ||
		!strings.Contains(err.Error(), "unknown fault") {
		t.Errorf("unknown fault: %v", err)
	}
}

// The kubelet has registered the plugin again before Restart returns, or later.
func TestEventsSinceLatestActionAreFound(t *testing.T) {
	kubelet := Start(t, "--simulate", "vendor.com/gpu=1")
	kubelet.WaitForResource("vendor.com/gpu", 1)
	before := kubelet.Mark()
	kubelet.Restart()
	kubelet.WaitForResource("vendor.com/gpu", 1)
	first := kubelet.WaitForEvent(EventWait{Kinds: []string{"registered"}})
	if first.Number <= before {
		t.Errorf("event %d is older than the restart, after %d", first.Number, before)
	}
	again := kubelet.WaitForEvent(EventWait{Kinds: []string{"registered"}, After: &before})
	if again.Number != first.Number {
		t.Errorf("event %d after %d, expected %d", again.Number, before, first.Number)
	}
}

func TestStartLimit(t *testing.T) {
	if deadline, ok := t.Deadline(); ok && startLimit(t) > time.Until(deadline) {
		t.Error("the start may take longer than the test")
	}
	if limit := startLimit(struct{ testing.TB }{t}); limit != startTimeout {
		t.Errorf("without a deadline: %v", limit)
	}
}

// tests/interop/test_go_client.py sets the variable and checks the output.
func TestUnknownOption(t *testing.T) {
	if os.Getenv("UNKNOWN_OPTION") == "" {
		t.Skip("UNKNOWN_OPTION is not set")
	}
	Start(t, "--no-such-option")
}

func TestErrors(t *testing.T) {
	kubelet := Start(t)
	ctx := context.Background()
	if err := kubelet.Client.Delete(ctx, "unknown"); err == nil {
		t.Error("deleted an unknown pod")
	}
	wait := 0.0
	err := kubelet.Client.WaitForResource(ctx, ResourceWait{Resource: "vendor.com/x", Timeout: &wait})
	if err == nil || !strings.Contains(err.Error(), "no plugin has registered the resource") {
		t.Errorf("wait for an unknown resource: %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "\n  started: kubelet serves") {
		t.Errorf("failed wait without events: %v", err)
	}
}

func TestCheck(t *testing.T) {
	options := []string{"--only", "O01", "--only", "A14", "--limit", "settle_seconds=0.2"}
	Check(t, options, program(), "simulate", "--directory", "{plugin_dir}")
}

// With the variable that tests/interop/test_go_client.py sets, this test fails on purpose.
func TestCheckFails(t *testing.T) {
	plugin := os.Getenv("BROKEN_PLUGIN")
	if plugin == "" {
		t.Skip("BROKEN_PLUGIN is not set")
	}
	Check(t, []string{"--only", "A02", "--limit", "settle_seconds=0.2"}, "sh", "-c", plugin, "{plugin_dir}")
}
