// Command plugin is a device plugin with virtual devices on the published API module.
//
// It serves first and then registers, and does both again whenever kubelet.sock is
// created. See README.md beside go.mod for its events and commands.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/lines"
	"kubelet-devicemanager/tests/interop/go/internal/sim"
)

type plugin struct {
	dir, socket string
	service     *sim.Service
	server      *grpc.Server
}

func (p *plugin) endpoint() string { return filepath.Join(p.dir, p.socket) }

func (p *plugin) serve() error {
	p.stop()
	if err := os.Remove(p.endpoint()); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", p.endpoint())
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p.service)
	go p.server.Serve(listener)
	lines.Emit("serving", lines.Fields{"endpoint": p.socket})
	return nil
}

// stop closes the listener, which removes the socket, and ends the list streams.
func (p *plugin) stop() {
	if p.server == nil {
		return
	}
	p.server.Stop()
	p.server = nil
	lines.Emit("stopped", nil)
}

func (p *plugin) register() error {
	conn, err := api.Dial(filepath.Join(p.dir, "kubelet.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.socket,
		ResourceName: p.service.Settings.Resource, Options: p.service.Options(),
	}, grpc.WaitForReady(true))
	return err
}

func (p *plugin) serveAndRegister() {
	if err := p.serve(); err != nil {
		lines.Fatal(err)
	}
	p.announce()
}

func (p *plugin) announce() {
	if err := p.register(); err != nil {
		lines.Emit("register-failed", lines.Fields{"error": err.Error()})
		return
	}
	lines.Emit("registered", lines.Fields{"resource": p.service.Settings.Resource})
}

// command executes one line from stdin; false ends the program.
func (p *plugin) command(words []string) bool {
	switch {
	case words[0] == "health" && len(words) == 3:
		p.service.Inventory.SetHealth(words[1], words[2])
	case words[0] == "register" && len(words) == 1:
		p.announce()
	case words[0] == "restart" && len(words) == 1:
		p.serveAndRegister()
	case words[0] == "stop" && len(words) == 1:
		p.stop()
	case words[0] == "quit" && len(words) == 1:
		return false
	default:
		lines.Emit("bad-command", lines.Fields{"words": words})
	}
	return true
}

func (p *plugin) run() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(p.dir); err != nil {
		return fmt.Errorf("cannot watch %s: %w", p.dir, err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	commands := lines.Commands(os.Stdin)
	kubelet := filepath.Join(p.dir, "kubelet.sock")

	// Watch before the check: a kubelet that starts in between is not missed.
	lines.Emit("watching", lines.Fields{"generation": api.Generation})
	if _, err := os.Stat(kubelet); err == nil {
		p.serveAndRegister()
	}
	defer p.stop()
	for {
		select {
		case event := <-watcher.Events:
			if event.Name == kubelet && event.Has(fsnotify.Create) {
				lines.Emit("kubelet-created", nil)
				p.serveAndRegister()
			}
		case err := <-watcher.Errors:
			return err
		case words, open := <-commands:
			if !open || !p.command(words) {
				return nil
			}
		case <-signals:
			return nil
		}
	}
}

func numbers(text string) []int64 {
	nodes := []int64{}
	for _, item := range lines.List(text) {
		node, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			lines.Fatal(fmt.Errorf("-numa: %q is not a number", item))
		}
		nodes = append(nodes, node)
	}
	return nodes
}

func main() {
	p := &plugin{}
	s := &sim.Settings{}
	flag.StringVar(&p.dir, "dir", strings.TrimSuffix(pluginapi.DevicePluginPath, "/"),
		"the kubelet's device plugin directory")
	flag.StringVar(&p.socket, "socket", "go-plugin.sock", "file name of the plugin's own socket")
	flag.StringVar(&s.Resource, "resource", "vendor.com/gpu", "resource to register")
	flag.StringVar(&s.Preferred, "preferred", "",
		"offer GetPreferredAllocation: lexical or reverse")
	flag.StringVar(&s.FailAllocate, "fail-allocate", "", "fail Allocate with this text")
	flag.BoolVar(&s.PreStart, "prestart", false, "require PreStartContainer")
	count := flag.Int("count", 2, "number of devices, named <last name>-<index>")
	numa := flag.String("numa", "", "NUMA nodes of the devices in turn, such as 0,1")
	flag.Parse()
	p.service = &sim.Service{
		Settings: s, Inventory: sim.NewInventory(s.LastName(), *count, numbers(*numa)),
	}
	if err := p.run(); err != nil {
		lines.Fatal(err)
	}
}
