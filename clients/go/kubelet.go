package mockkubelet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Command is the program that Start runs. The environment variable DEVICEMANAGER overrides it.
const Command = "devicemanager"

func program() string {
	if name := os.Getenv("DEVICEMANAGER"); name != "" {
		return name
	}
	return Command
}

const (
	stopTimeout = 10 * time.Second
	// The start may take as long as the test, or this long if the test has no deadline.
	startTimeout = 5 * time.Minute
	shownEvents  = 40
)

// startLimit returns the time to wait for a start, so that the test still ends before its deadline.
func startLimit(t testing.TB) time.Duration {
	limited, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return startTimeout
	}
	deadline, ok := limited.Deadline()
	if !ok {
		return startTimeout
	}
	return time.Until(deadline) - stopTimeout
}

// Kubelet is the mock kubelet of one test. Its methods fail the test where those of Client return
// an error.
type Kubelet struct {
	*Client
	t    testing.TB
	root string
	// Number of the event after which WaitForEvent searches by default.
	mark atomic.Int64
	// Warnings of the command before it was ready, by kind.
	warnings map[string]string
	// True if the error of a wait has shown the latest events.
	isShown atomic.Bool
}

// Start runs a mock kubelet until the end of the test, with options of "devicemanager run".
func Start(t testing.TB, options ...string) *Kubelet {
	t.Helper()
	root, err := os.MkdirTemp("", "mk-")
	if err != nil {
		t.Fatalf("mock kubelet: %v", err)
	}
	k := &Kubelet{t: t, root: root, Client: NewClient(filepath.Join(root, "control.sock"))}
	t.Cleanup(func() { os.RemoveAll(root) })
	arguments := append([]string{"run", "--root", root, "--control", "-o", "json"}, options...)
	command := exec.Command(program(), arguments...)
	// The kernel then stops the kubelet even if this process is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	printed := &output{}
	command.Stderr = printed
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("mock kubelet: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("mock kubelet: %v: install it in a checkout of kubelet-devicemanager with "+
			"pip install '.[control]', or '.[control,claims]' for DRA drivers, or name the "+
			"command in DEVICEMANAGER", err)
	}
	ready, ended := make(chan map[string]string, 1), make(chan error, 1)
	go func() {
		read(stdout, ready)
		ended <- command.Wait()
	}()
	isUp := false
	t.Cleanup(func() {
		if t.Failed() && isUp && !k.isShown.Load() {
			t.Log(k.recentEvents())
		}
		k.Client.Close()
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = command.Process.Kill()
			t.Errorf("mock kubelet: still running %v after SIGTERM", stopTimeout)
		}
	})
	limit := startLimit(t)
	select {
	case k.warnings = <-ready:
		isUp = true
	case err := <-ended:
		ended <- err
		t.Fatalf("mock kubelet exited: %v: %s", err, printed)
	case <-time.After(limit):
		t.Fatalf("mock kubelet: not ready after %v: %s", limit.Round(time.Second), printed)
	}
	return k
}

// read reads standard output until its end. When the kubelet reports that it is ready, read sends
// the warnings so far.
func read(stdout io.Reader, ready chan<- map[string]string) {
	warnings := map[string]string{}
	for scanner := bufio.NewReader(stdout); ; {
		line, err := scanner.ReadBytes('\n')
		var value struct {
			Kind, Message string
			Warning       bool
		}
		if warnings != nil && json.Unmarshal(line, &value) == nil {
			if value.Warning {
				warnings[value.Kind] = value.Message
			}
			if value.Kind == "ready" {
				ready <- warnings
				warnings = nil
			}
		}
		if err != nil {
			return
		}
	}
}

type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.text.String())
}

// Root returns the kubelet's directory, in place of /var/lib/kubelet.
func (k *Kubelet) Root() string { return k.root }

// PluginDir returns the directory of kubelet.sock and of the plugins' sockets.
func (k *Kubelet) PluginDir() string { return filepath.Join(k.root, "device-plugins") }

// PodResourcesSocket returns the socket of the PodResources API.
func (k *Kubelet) PodResourcesSocket() string {
	return filepath.Join(k.root, "pod-resources", "kubelet.sock")
}

// Command returns a command that runs a plugin with fixed paths: /var/lib/kubelet is the kubelet's
// directory, in private mounts that need no root. Start it with its method Start. It gets SIGTERM
// before the kubelet stops. If the test fails, its log shows what the command has printed.
func (k *Kubelet) Command(name string, arguments ...string) *exec.Cmd {
	k.t.Helper()
	return k.CommandWith(nil, name, arguments...)
}

// CommandWith is Command with options of `devicemanager exec`: "--dev", "--sys" and "--cdi", each
// followed by a directory that stands for hardware that the machine does not have.
func (k *Kubelet) CommandWith(options []string, name string, arguments ...string) *exec.Cmd {
	k.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	words := append([]string{"exec", "--root", k.root}, options...)
	words = append(append(words, "--", name), arguments...)
	command := exec.CommandContext(ctx, program(), words...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopTimeout
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	printed := &output{}
	command.Stdout, command.Stderr = printed, printed
	k.t.Cleanup(func() {
		k.t.Helper()
		stop()
		if command.Process != nil && command.ProcessState == nil {
			_ = command.Wait()
		}
		if k.t.Failed() {
			k.t.Logf("%s printed:\n%s", name, printed)
		}
	})
	return command
}

// Mark returns the number of the latest event, for the field After of EventWait.
func (k *Kubelet) Mark() int64 {
	k.t.Helper()
	return must[*Node](k, "Mark")(k.Client.Node(context.Background())).LatestEvent
}

// act notes the latest event before an action, so that WaitForEvent finds what follows from it.
func (k *Kubelet) act() {
	k.t.Helper()
	k.mark.Store(k.Mark())
}

// Admit admits a pod; see Client.Admit. A rejection does not fail the test.
func (k *Kubelet) Admit(manifest any) *Admission {
	k.t.Helper()
	k.act()
	return must[*Admission](k, "Admit")(k.Client.Admit(context.Background(), manifest))
}

// Delete deletes pods and frees their devices.
func (k *Kubelet) Delete(uids ...string) {
	k.t.Helper()
	k.act()
	k.check("Delete", k.Client.Delete(context.Background(), uids...))
}

// Finish lets the pod's app containers terminate with an exit code.
func (k *Kubelet) Finish(uid string, exitCode int) *Finished {
	k.t.Helper()
	k.act()
	return must[*Finished](k, "Finish")(k.Client.Finish(context.Background(), uid, exitCode))
}

// waitTimeout is the time that waits have if the test gives none.
const waitTimeout = 10 * time.Second

// first returns the only value of an optional argument, or its default.
func first(given []time.Duration, normal time.Duration) time.Duration {
	if len(given) > 0 {
		return given[0]
	}
	return normal
}

// WaitForResource waits until a resource has this number of allocatable devices, up to a timeout of
// 10 s or the one given.
func (k *Kubelet) WaitForResource(resource string, count int64, timeout ...time.Duration) {
	k.t.Helper()
	seconds := first(timeout, waitTimeout).Seconds()
	wait := ResourceWait{Resource: resource, Count: &count, Timeout: &seconds}
	k.check("WaitForResource", k.Client.WaitForResource(context.Background(), wait))
}

// WaitForEvent waits up to 10 s for the next matching event, and returns it. By default, events
// count since the latest action of this Kubelet, such as Restart or Admit, or since the event that
// WaitForEvent has returned before. For an action of your own, set After to a Mark before it.
func (k *Kubelet) WaitForEvent(wait EventWait) *Event {
	k.t.Helper()
	if wait.After == nil {
		after := k.mark.Load()
		wait.After = &after
	}
	event := must[*Event](k, "WaitForEvent")(k.Client.WaitForEvent(context.Background(), wait))
	k.mark.Store(event.Number)
	return event
}

// Resync syncs a pod now instead of at its next periodic sync: it retries a failed call of
// NodePrepareResources or NodeUnprepareResources at once.
func (k *Kubelet) Resync(uid string) {
	k.t.Helper()
	k.act()
	k.check("Resync", k.Client.Resync(context.Background(), uid))
}

// Restart restarts the kubelet.
func (k *Kubelet) Restart() {
	k.t.Helper()
	k.act()
	k.check("Restart", k.Client.Restart(context.Background()))
}

// Reboot reboots the node.
func (k *Kubelet) Reboot() {
	k.t.Helper()
	k.act()
	k.check("Reboot", k.Client.Reboot(context.Background()))
}

// Fault injects a fault, described as in "reject-register:times=2".
func (k *Kubelet) Fault(spec string) *Fault {
	k.t.Helper()
	k.act()
	return must[*Fault](k, "Fault")(k.Client.SetFault(context.Background(), spec))
}

// ClearFaults clears all faults.
func (k *Kubelet) ClearFaults() {
	k.t.Helper()
	k.act()
	k.check("ClearFaults", k.Client.ClearFaults(context.Background()))
}

// Calls returns the calls of one resource and one RPC, such as "Allocate"; empty selects all.
func (k *Kubelet) Calls(resource, rpc string) []Call {
	k.t.Helper()
	query := url.Values{}
	for name, value := range map[string]string{"resource": resource, "rpc": rpc} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return must[[]Call](k, "Calls")(k.Client.Calls(context.Background(), query))
}

// Devices lists the devices of a resource.
func (k *Kubelet) Devices(resource string) []DeviceStatus {
	k.t.Helper()
	return must[*DeviceList](k, "Devices")(k.Client.Devices(context.Background(), resource)).Items
}

// Events returns the events after event number since; 0 returns all stored events.
func (k *Kubelet) Events(since int64) []Event {
	k.t.Helper()
	return must[[]Event](k, "Events")(k.Client.Events(context.Background(), since))
}

func (k *Kubelet) check(what string, err error) {
	k.t.Helper()
	if err == nil {
		return
	}
	var report *Error
	if errors.As(err, &report) && strings.Contains(report.Detail, "\n") {
		k.isShown.Store(true) // the error of a wait has the events
	}
	k.t.Fatalf("%s: %v", what, err)
}

// must returns a function that returns its first argument, or fails the test if there is an error.
// It is not a method, because methods in Go have no type parameters.
func must[T any](k *Kubelet, what string) func(T, error) T {
	k.t.Helper()
	return func(value T, err error) T {
		k.t.Helper()
		k.check(what, err)
		return value
	}
}

// recentEvents describes the latest events, for the output of a failed test.
func (k *Kubelet) recentEvents() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	events, err := k.Client.Events(ctx, 0)
	if err != nil {
		return fmt.Sprintf("no events of the mock kubelet: %v", err)
	}
	if len(events) > shownEvents {
		events = events[len(events)-shownEvents:]
	}
	var text strings.Builder
	text.WriteString("the mock kubelet saw:\n")
	for _, event := range events {
		fmt.Fprintf(&text, "  %4d %s: %s\n", event.Number, event.Kind, event.Message)
	}
	return text.String()
}
