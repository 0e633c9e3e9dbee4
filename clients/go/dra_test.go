package mockkubelet

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
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
	if claim := dra.Claim("default", "gpu"); claim.Held || claim.State != "not-used" {
		t.Errorf("after the deletion: %+v", claim)
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
