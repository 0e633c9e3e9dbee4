package devices

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The second call fails with UNAVAILABLE, which an exporter must tolerate.
const script = `
allocatable:
  devices: [{resource_name: vendor.com/gpu, count: 4}]
pod_resources:
- namespace: ml
  name: train
  containers:
  - name: main
    devices: [{resource_name: vendor.com/gpu, indexes: 0-1}]
faults: ["fail-pod-resources:method=List,code=UNAVAILABLE,after=1,times=1"]
`

// serve runs `devicemanager podresources serve` until the end of the test.
func serve(t *testing.T, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // not t.TempDir(): a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	file, socket := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "kubelet.sock")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	name := os.Getenv("DEVICEMANAGER")
	if name == "" {
		name = "devicemanager"
	}
	server := exec.Command(name, "podresources", "serve", file, "--socket", socket)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatalf("%v: install kubelet-devicemanager, or set DEVICEMANAGER to the command", err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
		os.RemoveAll(dir)
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not exist after 20 s", socket)
		}
	}
}

func TestList(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	socket := serve(t, script)
	got, err := List(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"ml/train/main vendor.com/gpu": {"gpu-mock-0", "gpu-mock-1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := List(ctx, socket); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
	if _, err := List(ctx, socket); err != nil {
		t.Error(err)
	}
}
