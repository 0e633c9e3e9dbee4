// Command kubeletside acts as a kubelet for a plugin under test, with the published API
// module: it accepts registrations, reads device lists and makes the calls of its commands.
// See README.md beside go.mod for its events and commands.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelet-devicemanager/tests/interop/go/internal/api"
	"kubelet-devicemanager/tests/interop/go/internal/lines"
)

const checkpoint = "kubelet_internal_checkpoint"

type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	dir    string
	server *grpc.Server

	mu      sync.Mutex
	plugins map[string]*endpoint // by resource name
	streams sync.WaitGroup
}

// clean empties the directory as a starting kubelet does: directories and the checkpoint
// stay. A plugin notices that its socket is removed.
func (k *kubelet) clean() error {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == checkpoint {
			continue
		}
		if err := os.Remove(filepath.Join(k.dir, entry.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func (k *kubelet) start() error {
	if err := os.MkdirAll(k.dir, 0o750); err != nil {
		return err
	}
	if err := k.clean(); err != nil {
		return err
	}
	listener, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	if err != nil {
		return err
	}
	k.plugins = map[string]*endpoint{}
	k.server = grpc.NewServer()
	pluginapi.RegisterRegistrationServer(k.server, k)
	go k.server.Serve(listener)
	lines.Emit("serving", lines.Fields{"generation": api.Generation})
	return nil
}

// stop ends the registration server, then every connection to a plugin, and waits until
// the last list stream has ended.
func (k *kubelet) stop() {
	k.server.Stop()
	k.mu.Lock()
	for _, e := range k.plugins {
		e.conn.Close()
	}
	k.mu.Unlock()
	k.streams.Wait()
}

// endpoint returns the plugin of a resource, or reports that there is none.
func (k *kubelet) endpoint(resource string) *endpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, known := k.plugins[resource]
	if !known {
		lines.Emit("unknown-resource", lines.Fields{"resource": resource})
		return nil
	}
	return e
}

// command executes one line from stdin; false ends the program.
func (k *kubelet) command(words []string) bool {
	switch {
	case words[0] == "restart" && len(words) == 1:
		k.stop()
		if err := k.start(); err != nil {
			lines.Fatal(err)
		}
		return true
	case words[0] == "quit" && len(words) == 1:
		return false
	case len(words) < 3:
		lines.Emit("bad-command", lines.Fields{"words": words})
		return true
	}
	e := k.endpoint(words[1])
	if e == nil {
		return true
	}
	ids := lines.List(words[2])
	switch {
	case words[0] == "allocate" && len(words) == 3:
		e.allocate(ids)
	case words[0] == "prestart" && len(words) == 3:
		e.preStart(ids)
	case words[0] == "prefer" && len(words) == 5:
		size, err := strconv.ParseInt(words[4], 10, 32)
		if err != nil {
			lines.Emit("bad-command", lines.Fields{"words": words})
			return true
		}
		e.prefer(ids, lines.List(words[3]), int32(size))
	default:
		lines.Emit("bad-command", lines.Fields{"words": words})
	}
	return true
}

func main() {
	dir := flag.String("dir", strings.TrimSuffix(pluginapi.DevicePluginPath, "/"),
		"the device plugin directory to serve")
	flag.Parse()
	if !filepath.IsAbs(*dir) {
		lines.Fatal(fmt.Errorf("-dir %s is not absolute", *dir))
	}
	k := &kubelet{dir: *dir}
	if err := k.start(); err != nil {
		lines.Fatal(err)
	}
	defer k.stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	commands := lines.Commands(os.Stdin)
	for {
		select {
		case words, open := <-commands:
			if !open || !k.command(words) {
				return
			}
		case <-signals:
			return
		}
	}
}
