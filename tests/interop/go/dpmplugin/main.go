// Command dpmplugin is a device plugin with virtual devices on the Device Plugin Manager.
//
// The manager takes its directory from the API's constants: run it where
// /var/lib/kubelet/device-plugins is that directory. See README.md beside the parent
// module's go.mod for its events and commands.
package main

import (
	"flag"
	"os"
	"sync"
	"syscall"

	"github.com/kubevirt/device-plugin-manager/pkg/dpm"

	"kubelet-devicemanager/tests/interop/go/internal/lines"
	"kubelet-devicemanager/tests/interop/go/internal/sim"
)

// lister sends the names of the resources to the manager, at start and after every change.
type lister struct {
	namespace string
	count     int
	names     chan dpm.PluginNameList

	mu      sync.Mutex
	plugins map[string]*plugin // by last name
}

func (l *lister) GetResourceNamespace() string { return l.namespace }

func (l *lister) Discover(announce chan dpm.PluginNameList) {
	for names := range l.names {
		announce <- names
	}
}

func (l *lister) NewPlugin(name string) dpm.PluginInterface {
	p := &plugin{Service: sim.Service{
		Settings:  &sim.Settings{Resource: l.namespace + "/" + name},
		Inventory: sim.NewInventory(name, l.count, nil),
	}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plugins[name] = p
	return p
}

func (l *lister) setHealth(name, id, health string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.plugins[name]
	if known {
		p.Inventory.SetHealth(id, health)
	}
	return known
}

// plugin adds the manager's optional hooks to the simulated service.
type plugin struct{ sim.Service }

func (p *plugin) Start() error {
	lines.Emit("start", lines.Fields{"resource": p.Settings.Resource})
	return nil
}

func (p *plugin) Stop() error {
	lines.Emit("stop", lines.Fields{"resource": p.Settings.Resource})
	return nil
}

// runCommands executes the commands on stdin. At its end or at quit, it stops the manager with a
// signal, as a node does.
func (l *lister) runCommands() {
	for words := range lines.Commands(os.Stdin) {
		switch {
		case words[0] == "names" && len(words) == 2:
			l.names <- dpm.PluginNameList(lines.List(words[1]))
		case words[0] == "health" && len(words) == 4 && l.setHealth(words[1], words[2], words[3]):
		case words[0] == "quit":
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			return
		default:
			lines.Emit("bad-command", lines.Fields{"words": words})
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

func main() {
	namespace := flag.String("namespace", "color.example.com", "the vendor's domain")
	names := flag.String("names", "red", "last names of the resources, as in red,blue")
	count := flag.Int("count", 2, "devices of each, named <last name>-<index>")
	flag.Parse()
	l := &lister{
		namespace: *namespace, count: *count,
		names: make(chan dpm.PluginNameList, 1), plugins: map[string]*plugin{},
	}
	l.names <- dpm.PluginNameList(lines.List(*names))
	go l.runCommands()
	dpm.NewManager(l).Run()
	lines.Emit("ended", nil)
}
