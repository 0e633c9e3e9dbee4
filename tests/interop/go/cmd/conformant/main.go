// Command conformant is a device plugin that passes the conformance suite.
//
// With -deaf, its list handler takes updates from one channel and ignores the end of its
// stream, like handlers that were copied from the kubelet's own stub. Its devices are in
// devices.txt beside its directory, one line each: an ID and its health. SIGUSR1 makes it read
// the file again.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/sim"
)

const count = 4

// service responds to calls with the inventory of package sim; its list handler can be deaf.
type service struct {
	sim.Service
	deaf    bool
	mu      sync.Mutex
	health  map[string]string
	updates chan struct{} // used by the deaf handler, and shared by all its streams
	open    atomic.Int32  // number of list streams
	ended   chan struct{} // receives when the last list stream has ended
}

func (s *service) ListAndWatch(request *pluginapi.Empty, stream api.ListStream) error {
	if !s.deaf {
		s.open.Add(1)
		defer func() {
			if s.open.Add(-1) == 0 {
				select {
				case s.ended <- struct{}{}:
				default:
				}
			}
		}()
		return s.Service.ListAndWatch(request, stream)
	}
	for {
		response := &pluginapi.ListAndWatchResponse{Devices: s.Inventory.List()}
		if err := stream.Send(response); err != nil {
			// Like the stub, log the error and wait for the next update.
			fmt.Println("send failed:", err)
		}
		<-s.updates
	}
}

func (s *service) Allocate(
	ctx context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := api.AllocateIDs(container)
		for _, id := range ids {
			switch s.state(id) {
			case "":
				return nil, status.Errorf(codes.NotFound, "no device %q here", id)
			case pluginapi.Healthy:
			default:
				return nil, status.Errorf(codes.FailedPrecondition, "%s is broken", id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"DEVICES": strings.Join(ids, ",")},
			})
	}
	return response, nil
}

func (s *service) PreStartContainer(
	ctx context.Context, request *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	for _, id := range api.PreStartIDs(request) {
		if s.state(id) == "" {
			return nil, status.Errorf(codes.NotFound, "no device %q here", id)
		}
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

func (s *service) state(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health[id]
}

// read reads the devices from the file; without a file, all are healthy.
func (s *service) read(path string) {
	health := map[string]string{}
	file, err := os.Open(path)
	if err != nil {
		for i := 0; i < count; i++ {
			health[fmt.Sprintf("device-%d", i)] = pluginapi.Healthy
		}
	} else {
		defer file.Close()
		for scanner := bufio.NewScanner(file); scanner.Scan(); {
			if words := strings.Fields(scanner.Text()); len(words) == 2 {
				health[words[0]] = words[1]
			}
		}
	}
	s.mu.Lock()
	before := s.health
	s.health = health
	s.mu.Unlock()
	changed := false
	for id := range before {
		if health[id] == "" {
			s.Inventory.SetHealth(id, "gone")
			changed = true
		}
	}
	for id, state := range health {
		if before[id] != state {
			s.Inventory.SetHealth(id, state)
			changed = true
		}
	}
	if changed && s.deaf {
		go func() { s.updates <- struct{}{} }()
	}
}

type plugin struct {
	dir, name string
	service   *service
	server    *grpc.Server
}

func (p *plugin) socket() string { return filepath.Join(p.dir, p.name) }

func (p *plugin) comeUp() error {
	p.stop()
	if err := os.Remove(p.socket()); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", p.socket())
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p.service)
	go p.server.Serve(listener)
	conn, err := api.Dial(filepath.Join(p.dir, "kubelet.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.name,
		ResourceName: p.service.Settings.Resource, Options: p.service.Options(),
	})
	return err
}

func (p *plugin) stop() {
	if p.server != nil {
		p.server.Stop()
		p.server = nil
	}
}

// identity distinguishes a file from a later one of the same name. The inode alone is not
// enough: the file system can reuse it at once.
type identity struct{ inode, seconds, nanoseconds int64 }

var nothing identity

func identify(path string) identity {
	info, err := os.Lstat(path)
	if err != nil {
		return nothing
	}
	stat := info.Sys().(*syscall.Stat_t)
	return identity{int64(stat.Ino), stat.Mtim.Sec, stat.Mtim.Nsec}
}

func (p *plugin) run(devices string) error {
	if info, err := os.Stat(p.dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory", p.dir)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(p.dir); err != nil {
		return fmt.Errorf("cannot watch %s: %w", p.dir, err)
	}
	signals := make(chan os.Signal, 4)
	// Like many plugins, this one also catches SIGQUIT, on which Go would print all stacks.
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1)
	kubelet := filepath.Join(p.dir, "kubelet.sock")
	var known identity
	again := time.NewTimer(0)
	for {
		select {
		case got := <-signals:
			if got != syscall.SIGUSR1 {
				p.stop()
				return nil
			}
			p.service.read(devices)
			continue
		case event := <-watcher.Events:
			removed := event.Name == p.socket() && event.Has(fsnotify.Remove) && identify(p.socket()) == nothing
			if !removed && (event.Name != kubelet || identify(kubelet) == known) {
				continue
			}
		case <-p.service.ended:
			// The kubelet never reopens a stream: register again if the kubelet still runs.
			if p.server == nil || identify(kubelet) != known || p.service.open.Load() > 0 {
				continue
			}
		case <-again.C:
		case err := <-watcher.Errors:
			return err
		}
		now := identify(kubelet)
		if now == nothing {
			continue
		}
		known = now
		select { // drop the notification of streams that ended with the server
		case <-p.service.ended:
		default:
		}
		if err := p.comeUp(); err != nil {
			fmt.Println("cannot register:", err)
			again.Reset(time.Second)
		} else {
			again.Stop() // no retry of an earlier failure
		}
	}
}

func main() {
	dir := flag.String("dir", "", "the plugin directory")
	deaf := flag.Bool("deaf", false, "ignore the end of list streams")
	flag.Parse()
	svc := &service{
		Service: sim.Service{
			Settings: &sim.Settings{
				Resource: "conformance.example.com/device", Preferred: "lexical", PreStart: true,
			},
			Inventory: sim.NewInventory("device", count, nil),
		},
		deaf: *deaf, updates: make(chan struct{}), ended: make(chan struct{}, 1),
	}
	devices := filepath.Join(filepath.Dir(*dir), "devices.txt")
	svc.read(devices)
	name := fmt.Sprintf("device-%d.sock", os.Getpid())
	p := &plugin{dir: *dir, name: name, service: svc}
	if err := p.run(devices); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
