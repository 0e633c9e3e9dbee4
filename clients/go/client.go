// Package mockkubelet runs and controls a mock kubelet from Go tests.
//
//	kubelet := mockkubelet.Start(t)
//	go servePlugin(kubelet.PluginDir())
//	kubelet.WaitForResource("vendor.com/gpu", 4)
//	kubelet.Restart()
//	kubelet.WaitForResource("vendor.com/gpu", 4)
//
// Start runs the command devicemanager (of the Python distribution kubelet-devicemanager with
// its extra "control"), stops it at the end of the test, and shows the latest events if the test
// fails. Client has the same calls and returns errors, for programs other than tests. The types
// are those of docs/openapi.json.
package mockkubelet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Client sends requests to the control API of one mock kubelet. It is safe for concurrent use.
type Client struct {
	http *http.Client
}

// NewClient returns a client of a control socket, control.sock in the kubelet's directory.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is the response to a request that failed.
type Error struct {
	Status int
	// Detail is one line with the problem. For a wait that timed out, more lines show the events
	// so far.
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// do sends body as JSON, or as YAML if it is a string. It decodes the response into answer, unless
// answer is nil.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer == nil {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	kind := "application/json"
	switch body := body.(type) {
	case nil:
	case string:
		content, kind = strings.NewReader(body), "application/yaml"
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost/v1"+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", kind)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var problem struct{ Detail, Report string }
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		problem.Detail = fmt.Sprintf("%s %s: %s %s", method, path, response.Status, text)
	}
	if problem.Report != "" {
		problem.Detail = problem.Report // its first line is the detail
	}
	return nil, &Error{response.StatusCode, problem.Detail}
}

// lines reads a response with one JSON value per line.
func lines[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	response, err := c.send(ctx, "GET", path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var found []T
	reader := bufio.NewReader(response.Body)
	decoder := json.NewDecoder(reader)
	for {
		var value T
		if err := decoder.Decode(&value); err == io.EOF {
			return found, nil
		} else if err != nil {
			return found, err
		}
		found = append(found, value)
	}
}

// Admit admits a pod. The manifest is YAML or JSON text, or a value that encodes to JSON, such as
// a corev1.Pod. A rejection is not an error; see Admission.Admitted.
func (c *Client) Admit(ctx context.Context, manifest any) (*Admission, error) {
	var answer Admission
	return &answer, c.do(ctx, "POST", "/pods", manifest, &answer)
}

// Delete deletes pods and frees their devices.
func (c *Client) Delete(ctx context.Context, uids ...string) error {
	return c.do(ctx, "DELETE", "/pods?"+url.Values{"uid": uids}.Encode(), nil, nil)
}

// Resync syncs a pod now instead of at its next periodic sync: it retries a failed call of
// NodePrepareResources or NodeUnprepareResources at once.
func (c *Client) Resync(ctx context.Context, uid string) error {
	return c.do(ctx, "POST", "/pods/"+url.PathEscape(uid)+"/resync", nil, nil)
}

// ExplainClaims explains what each ResourceClaim of a pod waits for, and when the kubelet retries.
func (c *Client) ExplainClaims(ctx context.Context, uid string) (*ClaimsExplanation, error) {
	var answer ClaimsExplanation
	return &answer, c.do(ctx, "GET", "/pods/"+url.PathEscape(uid)+"/claims", nil, &answer)
}

// Finish lets the pod's app containers terminate with an exit code.
func (c *Client) Finish(ctx context.Context, uid string, exitCode int) (*Finished, error) {
	var answer Finished
	body := map[string]any{"exit_codes": exitCode}
	return &answer, c.do(ctx, "POST", "/pods/"+url.PathEscape(uid)+"/finish", body, &answer)
}

// Pods lists all pods that are not deleted.
func (c *Client) Pods(ctx context.Context) (*PodList, error) {
	var answer PodList
	return &answer, c.do(ctx, "GET", "/pods", nil, &answer)
}

// Devices lists the devices of a resource, or of all resources if it is empty.
func (c *Client) Devices(ctx context.Context, resource string) (*DeviceList, error) {
	query := url.Values{}
	if resource != "" {
		query.Set("resource", resource)
	}
	var answer DeviceList
	return &answer, c.do(ctx, "GET", "/devices?"+query.Encode(), nil, &answer)
}

// Resources lists all resources with their numbers of devices.
func (c *Client) Resources(ctx context.Context) (*ResourceList, error) {
	var answer ResourceList
	return &answer, c.do(ctx, "GET", "/resources", nil, &answer)
}

// Drivers lists the registered instances of DRA drivers.
func (c *Client) Drivers(ctx context.Context) (*DriverList, error) {
	var answer DriverList
	return &answer, c.do(ctx, "GET", "/dra/drivers", nil, &answer)
}

// ResourceClaims lists the ResourceClaims of the node, with their pods and devices.
func (c *Client) ResourceClaims(ctx context.Context) (*ResourceClaimList, error) {
	var answer ResourceClaimList
	return &answer, c.do(ctx, "GET", "/dra/claims", nil, &answer)
}

// ResourceClaim describes a ResourceClaim, and why it is not prepared.
func (c *Client) ResourceClaim(ctx context.Context, namespace, name string) (*ResourceClaimInfo, error) {
	var answer ResourceClaimInfo
	path := "/dra/claims/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
	return &answer, c.do(ctx, "GET", path, nil, &answer)
}

// ResourceSlices lists the ResourceSlices in the kubelet's memory. Slices that are stored on an API
// server are not included.
func (c *Client) ResourceSlices(ctx context.Context) (*ResourceSliceList, error) {
	var answer ResourceSliceList
	return &answer, c.do(ctx, "GET", "/dra/slices", nil, &answer)
}

// ApplyObjects creates or replaces ResourceClaims, ResourceSlices, DeviceClasses and templates in the
// kubelet's memory, given as YAML text or as a value that encodes to JSON.
func (c *Client) ApplyObjects(ctx context.Context, objects any) error {
	return c.do(ctx, "POST", "/dra/objects", objects, nil)
}

// DeleteObject deletes an object in the kubelet's memory, such as a ResourceClaim.
func (c *Client) DeleteObject(ctx context.Context, kind, namespace, name string) error {
	path := "/dra/objects/" + url.PathEscape(kind) + "/" + url.PathEscape(name)
	return c.do(ctx, "DELETE", path+"?"+url.Values{"namespace": {namespace}}.Encode(), nil, nil)
}

// PrepareClaims calls NodePrepareResources of a driver for claims, without a pod.
func (c *Client) PrepareClaims(ctx context.Context, call DriverCall) (*ClaimResults, error) {
	var answer ClaimResults
	return &answer, c.do(ctx, "POST", "/direct-calls/prepare", call, &answer)
}

// UnprepareClaims calls NodeUnprepareResources of a driver for claims, without a pod.
func (c *Client) UnprepareClaims(ctx context.Context, call DriverCall) (*ClaimResults, error) {
	var answer ClaimResults
	return &answer, c.do(ctx, "POST", "/direct-calls/unprepare", call, &answer)
}

// Node returns the paths of the kubelet's sockets and files.
func (c *Client) Node(ctx context.Context) (*Node, error) {
	var answer Node
	return &answer, c.do(ctx, "GET", "/node", nil, &answer)
}

// Restart restarts the kubelet: plugins must re-register at a new kubelet.sock.
func (c *Client) Restart(ctx context.Context) error {
	return c.do(ctx, "POST", "/node/restart", nil, nil)
}

// Reboot reboots the node: all containers stop.
func (c *Client) Reboot(ctx context.Context) error {
	return c.do(ctx, "POST", "/node/reboot", nil, nil)
}

// StopServing stops the kubelet; the control API continues.
func (c *Client) StopServing(ctx context.Context) error {
	return c.do(ctx, "POST", "/node/stop", nil, nil)
}

// StartServing starts the kubelet again.
func (c *Client) StartServing(ctx context.Context) error {
	return c.do(ctx, "POST", "/node/start", nil, nil)
}

// WaitForResource waits until a resource has the requested number of allocatable devices. On
// timeout, the error shows the events so far.
func (c *Client) WaitForResource(ctx context.Context, wait ResourceWait) error {
	return c.do(ctx, "POST", "/waits/resource", wait, nil)
}

// WaitForEvent waits for the next matching event. On timeout, the error shows the events so far.
func (c *Client) WaitForEvent(ctx context.Context, wait EventWait) (*Event, error) {
	var answer Event
	return &answer, c.do(ctx, "POST", "/waits/event", wait, &answer)
}

// SetFault injects a fault, described as in "reject-register:times=2".
func (c *Client) SetFault(ctx context.Context, spec string) (*Fault, error) {
	var answer Fault
	return &answer, c.do(ctx, "POST", "/faults", map[string]any{"spec": spec}, &answer)
}

// ClearFaults clears all faults.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, "DELETE", "/faults", nil, nil)
}

// Events returns the events after event number since; 0 returns all stored events.
func (c *Client) Events(ctx context.Context, since int64) ([]Event, error) {
	return lines[Event](ctx, c, "/events", url.Values{"since": {fmt.Sprint(since)}})
}

// Calls returns the RPCs between the kubelet and plugins; query takes the parameters of getCalls,
// such as rpc and resource.
func (c *Client) Calls(ctx context.Context, query url.Values) ([]Call, error) {
	return lines[Call](ctx, c, "/calls", query)
}

// Allocate calls the plugin's Allocate without a pod. The IDs need not exist.
func (c *Client) Allocate(ctx context.Context, request Allocate) (*Allocated, error) {
	var answer Allocated
	return &answer, c.do(ctx, "POST", "/direct-calls/allocate", request, &answer)
}

// Advance advances the clock of a kubelet that was started with --clock manual.
func (c *Client) Advance(ctx context.Context, seconds float64) error {
	return c.do(ctx, "POST", "/clock/advance", Advance{Seconds: seconds}, nil)
}
