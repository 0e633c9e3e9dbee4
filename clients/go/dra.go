package mockkubelet

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// DRA is a mock kubelet with an API server, for the test of a DRA driver. The API server has the
// Node object, a scheduler and a claim controller. The kubelet runs the pods that are bound to it.
type DRA struct {
	*Kubelet
	// API has the address and the credentials of the API server.
	API APIConfig

	mu        sync.Mutex
	listeners map[string][]*trackedListener
}

// APIConfig has the fields of client-go's rest.Config that select an API server:
//
//	config := &rest.Config{Host: api.Host, BearerToken: api.BearerToken}
//	config.CAData = api.CAData
type APIConfig struct {
	Host        string
	BearerToken string
	CAData      []byte
	// Kubeconfig is the path of a kubeconfig with the same content.
	Kubeconfig string
}

// podTimeout is the time that pods have to start or to be removed.
const podTimeout = 30 * time.Second

// StartDRA runs a mock kubelet with an API server until the end of the test, with options of
// "devicemanager run".
func StartDRA(t testing.TB, options ...string) *DRA {
	t.Helper()
	kubelet := Start(t, append([]string{"--api-server"}, options...)...)
	d := &DRA{Kubelet: kubelet, listeners: map[string][]*trackedListener{}}
	path := filepath.Join(kubelet.Root(), "kubeconfig")
	config, err := readKubeconfig(path)
	if err != nil {
		t.Fatalf("mock kubelet: %s: %v", path, err)
	}
	d.API = *config
	return d
}

// readKubeconfig reads the kubeconfig that devicemanager has written, which is JSON.
func readKubeconfig(path string) (*APIConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server    string
				Authority string `json:"certificate-authority-data"`
			}
		}
		Users []struct{ User struct{ Token string } }
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return nil, fmt.Errorf("no cluster, or no user")
	}
	authority, err := base64.StdEncoding.DecodeString(config.Clusters[0].Cluster.Authority)
	return &APIConfig{
		Host:        config.Clusters[0].Cluster.Server,
		BearerToken: config.Users[0].User.Token,
		CAData:      authority,
		Kubeconfig:  path,
	}, err
}

// NodeName returns the name of the Node object.
func (d *DRA) NodeName() string {
	d.t.Helper()
	return must[*Node](d.Kubelet, "NodeName")(d.Client.Node(context.Background())).Name
}

// RegistrarDir returns the directory of registration sockets, plugins_registry.
func (d *DRA) RegistrarDir() string { return filepath.Join(d.Root(), "plugins_registry") }

// DataDir returns the directory of a driver, plugins/NAME, and creates it.
func (d *DRA) DataDir(driver string) string { return d.directory("plugins", driver) }

// CDIDir returns a directory for CDI files, and creates it.
func (d *DRA) CDIDir() string { return d.directory("cdi") }

func (d *DRA) directory(parts ...string) string {
	d.t.Helper()
	path := filepath.Join(append([]string{d.Root()}, parts...)...)
	d.check("directory", os.MkdirAll(path, 0o755))
	return path
}

// -- listeners -----------------------------------------------------------------------------

// trackedListener closes its connections, too, when the test stops it.
type trackedListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
	}
	return conn, err
}

// Listen opens a unix socket for a driver, in place of a file that is left over. It has the type
// that kubeletplugin.RegistrarListener and kubeletplugin.PluginListener take. The socket is closed
// at the end of the test, or by CloseSocket.
func (d *DRA) Listen(_ context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	tracked := &trackedListener{Listener: listener}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.listeners) == 0 {
		d.t.Cleanup(func() { d.CloseSocket("") })
	}
	d.listeners[path] = append(d.listeners[path], tracked)
	return tracked, nil
}

// CloseSocket closes the socket of this path with its connections, as if the driver was killed, and
// returns the number of sockets closed. An empty path closes all sockets of Listen.
func (d *DRA) CloseSocket(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	closed := 0
	for name, listeners := range d.listeners {
		if path != "" && name != path {
			continue
		}
		for _, listener := range listeners {
			_ = listener.Close()
			listener.mu.Lock()
			for _, conn := range listener.conns {
				_ = conn.Close()
			}
			listener.mu.Unlock()
			closed++
		}
		delete(d.listeners, name)
	}
	return closed
}

// WaitForDriver waits up to 10 s until the kubelet is connected to an instance of a driver.
func (d *DRA) WaitForDriver(driver string) {
	d.t.Helper()
	connected := func() bool {
		list := must[*DriverList](d.Kubelet, "Drivers")(d.Client.Drivers(context.Background()))
		for _, instance := range list.Items {
			if instance.Driver == driver && instance.Connected {
				return true
			}
		}
		return false
	}
	mark := d.Mark()
	if !connected() {
		wait := EventWait{Kinds: []string{"driver-connected"}, Resource: &driver, After: &mark}
		d.WaitForEvent(wait)
	}
}

// Claim describes a ResourceClaim: its pods, its devices, and why it is not prepared.
func (d *DRA) Claim(namespace, name string) *ResourceClaimInfo {
	d.t.Helper()
	claim, err := d.Client.ResourceClaim(context.Background(), namespace, name)
	return must[*ResourceClaimInfo](d.Kubelet, "Claim")(claim, err)
}

// -- the API server ------------------------------------------------------------------------

var (
	apiVersionOf = regexp.MustCompile(`(?m)^apiVersion:\s*["']?([\w./-]+)`)
	kindOf       = regexp.MustCompile(`(?m)^kind:\s*["']?(\w+)`)
	namespaceOf  = regexp.MustCompile(`\bnamespace:\s*["']?([\w.-]+)`)
	documents    = regexp.MustCompile(`(?m)^---.*$`)
	plurals      = map[string]string{
		"DeviceClass": "deviceclasses", "DeviceTaintRule": "devicetaintrules",
		"Namespace": "namespaces", "Node": "nodes", "ResourceSlice": "resourceslices",
	}
	namespaced = map[string]string{
		"Pod": "pods", "ResourceClaim": "resourceclaims",
		"ResourceClaimTemplate": "resourceclaimtemplates",
	}
)

// meta has the fields that select the path of an object.
type meta struct {
	APIVersion string
	Kind       string
	Metadata   struct{ Name, Namespace string }
}

// Create creates objects on the API server. An object is YAML text with one or more documents, or a
// value that encodes to JSON and has its apiVersion and kind. The namespace of a document is the
// first one that it names, or "default".
func (d *DRA) Create(objects ...any) {
	d.t.Helper()
	for _, object := range objects {
		text, ok := object.(string)
		if !ok {
			encoded, err := json.Marshal(object)
			d.check("Create", err)
			var found meta
			d.check("Create", json.Unmarshal(encoded, &found))
			d.create(found, "application/json", encoded)
			continue
		}
		for _, document := range documents.Split(text, -1) {
			if strings.TrimSpace(document) != "" {
				d.create(metaOf(document), "application/yaml", []byte(document))
			}
		}
	}
}

func metaOf(document string) meta {
	first := func(pattern *regexp.Regexp) string {
		if found := pattern.FindStringSubmatch(document); found != nil {
			return found[1]
		}
		return ""
	}
	found := meta{APIVersion: first(apiVersionOf), Kind: first(kindOf)}
	found.Metadata.Namespace = first(namespaceOf)
	return found
}

func (d *DRA) create(object meta, kind string, body []byte) {
	d.t.Helper()
	path, err := object.path()
	d.check("Create", err)
	response, err := d.request("POST", path, kind, bytes.NewReader(body))
	d.check("Create "+object.Kind, err)
	_ = response.Body.Close()
}

// path returns the path of the objects of this kind.
func (m meta) path() (string, error) {
	prefix := "/api/" + m.APIVersion
	if strings.Contains(m.APIVersion, "/") {
		prefix = "/apis/" + m.APIVersion
	}
	if plural, ok := plurals[m.Kind]; ok {
		return prefix + "/" + plural, nil
	}
	plural, ok := namespaced[m.Kind]
	if !ok || m.APIVersion == "" {
		return "", fmt.Errorf("unknown object: apiVersion %q, kind %q", m.APIVersion, m.Kind)
	}
	namespace := m.Metadata.Namespace
	if namespace == "" {
		namespace = "default"
	}
	return prefix + "/namespaces/" + namespace + "/" + plural, nil
}

func (d *DRA) request(method, path, kind string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequest(method, d.API.Host+path, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	if d.API.BearerToken != "" {
		request.Header.Set("Authorization", "Bearer "+d.API.BearerToken)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode < 300 {
		return response, err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return nil, &Error{response.StatusCode, status.Message}
	}
	return nil, &Error{response.StatusCode, fmt.Sprintf("%s: %s", response.Status, text)}
}

// DeletePod deletes a pod on the API server, and waits up to 30 s until it is gone: its containers
// have stopped, and the driver has unprepared its claims.
func (d *DRA) DeletePod(namespace, name string) {
	d.t.Helper()
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	response, err := d.request("DELETE", path, "", nil)
	d.check("DeletePod", err)
	_ = response.Body.Close()
	d.watchPod(namespace, name, "to be removed", func(event string, _ podStatus) bool {
		return event == "DELETED" || event == "NONE"
	})
}

// WaitForPod waits up to 30 s until a pod of the API server is in a phase, such as Running.
func (d *DRA) WaitForPod(namespace, name, phase string) {
	d.t.Helper()
	d.watchPod(namespace, name, "to be "+phase, func(event string, pod podStatus) bool {
		return event != "DELETED" && pod.Status.Phase == phase
	})
}

type podStatus struct {
	Status struct{ Phase, Reason, Message string }
}

// watchPod waits until the condition is true for an event of the pod: NONE if it does not exist,
// ADDED, MODIFIED or DELETED.
func (d *DRA) watchPod(namespace, name, what string, isDone func(string, podStatus) bool) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), podTimeout)
	defer cancel()
	query := url.Values{"fieldSelector": {"metadata.name=" + name}}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods?"
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []podStatus
	}
	response, err := d.request("GET", path+query.Encode(), "", nil)
	d.check("watch pods", err)
	err = json.NewDecoder(response.Body).Decode(&list)
	_ = response.Body.Close()
	d.check("watch pods", err)
	var last podStatus
	if len(list.Items) == 0 && isDone("NONE", last) {
		return
	}
	for _, last = range list.Items {
		if isDone("ADDED", last) {
			return
		}
	}
	query.Set("watch", "1")
	query.Set("resourceVersion", list.Metadata.ResourceVersion)
	response, err = d.request("GET", path+query.Encode(), "", nil)
	d.check("watch pods", err)
	defer response.Body.Close()
	// The watch has no end of its own.
	stop := context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	defer stop()
	for decoder := json.NewDecoder(response.Body); ; {
		var event struct {
			Type   string
			Object podStatus
		}
		if err := decoder.Decode(&event); err != nil {
			d.t.Fatalf("waited %v for pod %s/%s %s; it is %+v", podTimeout, namespace, name, what, last.Status)
		}
		last = event.Object
		if isDone(event.Type, event.Object) {
			return
		}
	}
}
