package example

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	mockkubelet "kubelet-devicemanager/clients/go"
)

// start runs the plugin in this process and a kubelet in another. With PLANT_BUG in the
// environment the plugin loses changes, and TestChangesAfterRestarts fails.
func start(t *testing.T) (*mockkubelet.Kubelet, *Plugin) {
	kubelet := mockkubelet.Start(t)
	plugin := New(kubelet.PluginDir(), 4)
	plugin.LosesChanges = os.Getenv("PLANT_BUG") != ""
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plugin.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	kubelet.WaitForResource(Resource, 4)
	return kubelet, plugin
}

// build returns the path of this module's command.
func build(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "example")
	done, err := exec.Command("go", "build", "-o", path, "./cmd/example").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v: %s", err, done)
	}
	return path
}

// Without an argument, the command uses the kubelet's fixed path.
func TestCommandWithFixedPath(t *testing.T) {
	kubelet := mockkubelet.Start(t)
	if err := kubelet.Command(build(t), "-count", "2").Start(); err != nil {
		t.Fatal(err)
	}
	kubelet.WaitForResource(Resource, 2)
}

// A file in the directory that stands for /sys is a card that this machine does not have.
func TestCommandWithHardware(t *testing.T) {
	kubelet := mockkubelet.Start(t)
	sys := t.TempDir()
	if err := os.WriteFile(filepath.Join(sys, "model"), []byte("v1"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := kubelet.CommandWith([]string{"--sys", sys}, "cat", "/sys/model")
	command.Stdout = nil
	if model, err := command.Output(); err != nil || string(model) != "v1" {
		t.Errorf("%q, %v", model, err)
	}
}

func TestChecksOfHealth(t *testing.T) {
	options := []string{
		"--at-node-paths", "--only", "W07", "--only", "W08", "--limit", "settle_seconds=0.2",
		"--hook", "break-device=touch {root}/{id}", "--hook", "recover-device=rm {root}/{id}",
	}
	mockkubelet.Check(t, options, build(t), "-broken", "{root}")
}

func TestAllocate(t *testing.T) {
	kubelet, _ := start(t)
	admission := kubelet.Admit(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "pod"},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": "x",
			"resources": map[string]any{"limits": map[string]any{Resource: 1}},
		}}},
	})
	if !admission.Admitted {
		t.Fatalf("%s: %s", admission.Reason, admission.Message)
	}
	if envs := admission.Containers["main"].Settings.Envs; envs["GPU_0"] == "" {
		t.Errorf("environment variables of the container: %v", envs)
	}
}

func TestChangesAfterRestarts(t *testing.T) {
	kubelet, plugin := start(t)
	for restarts := 0; restarts < 3; restarts++ {
		kubelet.Restart()
		kubelet.WaitForResource(Resource, 4)
		plugin.SetHealth("gpu-0", pluginapi.Unhealthy)
		kubelet.WaitForResource(Resource, 3)
		plugin.SetHealth("gpu-0", pluginapi.Healthy)
		kubelet.WaitForResource(Resource, 4)
	}
}
