package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// program starts a plugin that is a program, and waits until the kubelet has its first list.
func (n *node) program(r *Registration) (*served, error) {
	command := []string{}
	for _, word := range r.Program {
		command = append(command, strings.ReplaceAll(word, "$DIRECTORY", n.dir))
	}
	before, known, sockets := n.written(), n.allocatable(r.Resource), n.sockets()
	p := &served{resource: r.Resource, spec: &r.Plugin, node: n, command: exec.Command(command[0], command[1:]...)}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	err := wait(func() bool { return n.written() != before && n.allocatable(r.Resource) != known },
		"the program of "+r.Resource+" does not register")
	for _, socket := range n.sockets() {
		if !slices.Contains(sockets, socket) {
			p.own = append(p.own, socket)
		}
	}
	return p, err
}

func (n *node) sockets() []string {
	found, _ := filepath.Glob(filepath.Join(n.dir, "*.sock"))
	return found
}

func (n *node) allocatable(resource string) string {
	_, allocatable := n.capacity()
	amount, exists := allocatable[v1.ResourceName(resource)]
	return fmt.Sprint(amount.Value(), exists)
}

// kill ends the program and removes its sockets, which a killed program leaves.
func (p *served) kill() {
	p.command.Process.Kill()
	p.command.Wait()
	p.gone.Store(true)
	for _, socket := range p.own {
		os.Remove(socket)
	}
}
