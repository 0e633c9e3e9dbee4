package mockkubelet

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
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
	if text, ok := kubelet.warnings["cel-unavailable"]; ok {
		t.Fatalf("mock kubelet: %s", text)
	}
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

// WaitForDriver waits until the kubelet is connected to an instance of a driver, up to a timeout of
// 10 s or the one given.
func (d *DRA) WaitForDriver(driver string, timeout ...time.Duration) {
	d.t.Helper()
	limit := first(timeout, waitTimeout)
	connected := func() bool {
		list := must[*DriverList](d.Kubelet, "Drivers")(d.Client.Drivers(context.Background()))
		for _, instance := range list.Items {
			if instance.Driver == driver && instance.Connected {
				return true
			}
		}
		return false
	}
	mark, seconds := d.Mark(), limit.Seconds()
	if connected() {
		return
	}
	wait := EventWait{
		Kinds: []string{"driver-connected"}, Resource: &driver, After: &mark, Timeout: &seconds,
	}
	_, err := d.Client.WaitForEvent(context.Background(), wait)
	var late *Error
	if errors.As(err, &late) && late.Status == http.StatusGatewayTimeout {
		err = fmt.Errorf("waited %v for DRA driver %s\n%s", limit, driver, d.registered(driver))
	}
	d.check("WaitForDriver", err)
}

// registered describes the drivers of the kubelet and the sockets of drivers, for the error of a
// wait for a driver.
func (d *DRA) registered(driver string) string {
	var text strings.Builder
	list, err := d.Client.Drivers(context.Background())
	if err != nil {
		return fmt.Sprintf("  registered drivers: unknown: %v", err)
	}
	others := false
	for _, each := range list.Items {
		state := "connected"
		if !each.Connected {
			state = "not connected: no process accepts connections on its endpoint"
		}
		fmt.Fprintf(&text, "  registered: %s, endpoint %s, %s\n", each.Driver, each.Endpoint, state)
		others = others || each.Driver != driver
	}
	found, err := filepath.Glob(filepath.Join(d.RegistrarDir(), "*"))
	switch {
	case others:
		text.WriteString("  use the name that the driver gives to kubeletplugin.DriverName")
	case len(list.Items) > 0:
	case err == nil && len(found) == 0:
		fmt.Fprintf(&text, "  no driver is registered, and no socket is in %s: start the driver with "+
			"kubeletplugin.RegistrarDirectoryPath(dra.RegistrarDir()) before the wait", d.RegistrarDir())
	default:
		fmt.Fprintf(&text, "  no driver is registered; sockets: %s: the events below say why",
			strings.Join(found, ", "))
	}
	return strings.TrimRight(text.String(), "\n")
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

// ResyncPod syncs a pod of the API server now instead of at its next periodic sync: it retries a
// failed call of NodePrepareResources or NodeUnprepareResources at once.
func (d *DRA) ResyncPod(namespace, name string) {
	d.t.Helper()
	pods, err := d.pods(namespace, name)
	d.check("ResyncPod", err)
	if len(pods.Items) == 0 {
		d.t.Fatalf("ResyncPod: %s", d.noPod(namespace, name))
	}
	d.Resync(pods.Items[0].Metadata.UID)
}

// DeletePod deletes a pod on the API server, and waits until it is gone: its containers have
// stopped, and the driver has unprepared its claims. The timeout is 30 s or the one given.
func (d *DRA) DeletePod(namespace, name string, timeout ...time.Duration) {
	d.t.Helper()
	path := podsPath(namespace) + "/" + url.PathEscape(name)
	response, err := d.request("DELETE", path, "", nil)
	d.check("DeletePod", err)
	_ = response.Body.Close()
	limit := first(timeout, podTimeout)
	d.watchPod(namespace, name, "to be removed", limit, func(event string, _ podStatus) bool {
		return event == "DELETED" || event == "NONE"
	})
}

// WaitForPod waits until a pod of the API server is in a phase, such as Running, up to a timeout of
// 30 s or the one given. The error after the timeout says what the pod waits for.
func (d *DRA) WaitForPod(namespace, name, phase string, timeout ...time.Duration) {
	d.t.Helper()
	limit := first(timeout, podTimeout)
	d.watchPod(namespace, name, "to be "+phase, limit, func(event string, pod podStatus) bool {
		return event != "DELETED" && pod.Status.Phase == phase
	})
}

type podStatus struct {
	Metadata struct{ Name, UID string }
	Spec     struct{ NodeName string }
	Status   struct {
		Phase, Reason, Message string
		Conditions             []struct{ Type, Status, Reason, Message string }
	}
}

type podStatuses struct {
	Metadata struct{ ResourceVersion string }
	Items    []podStatus
}

func podsPath(namespace string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
}

// pods lists the pods of a namespace with this name; all of them if it is empty.
func (d *DRA) pods(namespace, name string) (*podStatuses, error) {
	query := url.Values{}
	if name != "" {
		query.Set("fieldSelector", "metadata.name="+name)
	}
	response, err := d.request("GET", podsPath(namespace)+"?"+query.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list podStatuses
	return &list, json.NewDecoder(response.Body).Decode(&list)
}

// noPod says that a pod does not exist, and names those that do.
func (d *DRA) noPod(namespace, name string) string {
	text := fmt.Sprintf("pod %s/%s does not exist", namespace, name)
	others, err := d.pods(namespace, "")
	if err != nil || len(others.Items) == 0 {
		return text + ": create it with Create"
	}
	names := make([]string, len(others.Items))
	for n, each := range others.Items {
		names[n] = each.Metadata.Name
	}
	return text + "; pods in this namespace: " + strings.Join(names, ", ")
}

// waitsFor describes a pod and what it waits for, for the error of a wait.
func (d *DRA) waitsFor(namespace, name string, pod podStatus) string {
	if pod.Metadata.UID == "" {
		return d.noPod(namespace, name)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "it is %s", pod.Status.Phase)
	for _, each := range []string{pod.Status.Reason, pod.Status.Message} {
		if each != "" {
			fmt.Fprintf(&text, ": %s", each)
		}
	}
	for _, each := range pod.Status.Conditions {
		if each.Status != "True" && each.Message != "" {
			fmt.Fprintf(&text, "\n  %s is %s: %s: %s", each.Type, each.Status, each.Reason, each.Message)
		}
	}
	found, err := d.Client.ExplainClaims(context.Background(), pod.Metadata.UID)
	if err != nil { // no node has the pod
		if pod.Spec.NodeName == "" {
			text.WriteString("\n  the scheduler has not bound it to a node: `devicemanager dra explain " +
				"--kubeconfig PATH " + namespace + "/" + name + "` shows why, with the path API.Kubeconfig " +
				"while the test runs")
		}
		return text.String()
	}
	shown := false // the text of a claim can have the error
	for _, each := range found.Claims {
		fmt.Fprintf(&text, "\n  claim %s: %s: %s", each.Entry, each.State, each.Text)
		shown = shown || strings.Contains(each.Text, found.Error)
	}
	if !shown {
		fmt.Fprintf(&text, "\n  last error: %s", found.Error)
	}
	if found.RetryIn != nil {
		fmt.Fprintf(&text, "\n  next try in %.0f s: ResyncPod retries at once", *found.RetryIn)
	}
	return text.String()
}

// watchPod waits until the condition is true for an event of the pod: NONE if it does not exist,
// ADDED, MODIFIED or DELETED.
func (d *DRA) watchPod(
	namespace, name, what string, limit time.Duration, isDone func(string, podStatus) bool,
) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	list, err := d.pods(namespace, name)
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
	query := url.Values{
		"fieldSelector": {"metadata.name=" + name}, "watch": {"1"},
		"resourceVersion": {list.Metadata.ResourceVersion},
	}
	response, err := d.request("GET", podsPath(namespace)+"?"+query.Encode(), "", nil)
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
			d.t.Fatalf("waited %v for pod %s/%s %s; %s",
				limit, namespace, name, what, d.waitsFor(namespace, name, last))
		}
		last = event.Object
		if event.Type == "DELETED" {
			last = podStatus{}
		}
		if isDone(event.Type, event.Object) {
			return
		}
	}
}
