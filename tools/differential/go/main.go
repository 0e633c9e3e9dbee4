// Command reference runs scenarios in the kubelet's device manager, topology manager and
// PodResources server, and prints their decisions, files and responses.
//
//	reference   answers each line on stdin, a Scenario as JSON, with a line on stdout:
//	            {"id", "runs": [{"steps": [Outcome, …], "panic": text}, …]} or
//	            {"id", "config_error"} or {"id", "failed"}
//
//	reference bench, reference plugin
//	            the node and the plugin of the benchmarks; see bench.go
//
// The device manager's directory is compiled in. Therefore no other program may use
// /var/lib/kubelet/device-plugins: use a private mount namespace. Each run empties it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
)

// configError is a rejection of the topology manager's configuration.
type configError struct{ error }

type answer struct {
	ID          string     `json:"id"`
	Runs        []Outcomes `json:"runs,omitempty"`
	ConfigError string     `json:"config_error,omitempty"`
	Failed      string     `json:"failed,omitempty"`
}

// Outcomes are the results of one run. After a panic of the kubelet there are no more.
type Outcomes struct {
	Steps []Outcome `json:"steps"`
	Panic string    `json:"panic,omitempty"`
}

func answerTo(line []byte) (*answer, error) {
	scenario := &Scenario{}
	if err := json.Unmarshal(line, scenario); err != nil {
		return nil, err
	}
	found := &answer{ID: scenario.ID}
	if err := setGates(scenario.FeatureGates); err != nil {
		return nil, err
	}
	for run := 0; run < max(1, scenario.Runs); run++ {
		outcomes := Outcomes{}
		err := play(scenario, &outcomes)
		rejected := configError{}
		if errors.As(err, &rejected) {
			found.ConfigError = rejected.Error()
			return found, nil
		}
		if err != nil {
			found.Failed = err.Error()
			return found, nil
		}
		found.Runs = append(found.Runs, outcomes)
	}
	return found, nil
}

// defaults has the default values of all gates that a scenario has set.
var defaults = map[string]bool{}

// setGates sets these gates, and all others to their defaults.
func setGates(gates map[string]bool) error {
	wanted := maps.Clone(defaults)
	gates = maps.Clone(gates)
	if value, isSet := gates["ResourceHealthStatus"]; isSet {
		gates["ResourceHealthStatusMessage"] = value // depends on it
	}
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	for name, value := range gates {
		// A kubelet ignores gates that it does not know.
		if _, exists := all[featuregate.Feature(name)]; !exists {
			continue
		}
		if _, known := defaults[name]; !known {
			defaults[name] = utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
		}
		wanted[name] = value
	}
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
}

func play(scenario *Scenario, outcomes *Outcomes) error {
	n, err := newNode(scenario)
	if err != nil {
		return err
	}
	defer n.abandonable(n.stop)
	for _, resource := range slices.Sorted(maps.Keys(scenario.Resources)) {
		plugin := scenario.Resources[resource]
		reply, err := n.register(&Registration{Resource: resource, Plugin: *plugin})
		if err != nil || reply.Text != "" {
			return fmt.Errorf("%s does not register: %s %w", resource, reply.Text, err)
		}
	}
	n.ready = true
	n.log.take()
	healthUpdates(n.manager)
	n.seen = n.written()
	steps := scenario.Steps
	for _, pod := range scenario.Pods {
		steps = append(steps, Step{Admit: pod, Lists: true})
	}
	for i, step := range steps {
		outcome, err := n.observed(&step)
		if text := (panicked{}); errors.As(err, &text) {
			outcomes.Panic = text.text
			return nil
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		outcomes.Steps = append(outcomes.Steps, *outcome)
	}
	return nil
}

// panicked is a panic of the kubelet.
type panicked struct{ text string }

func (p panicked) Error() string { return "panic: " + p.text }

// observed does a step and observes the node.
func (n *node) observed(step *Step) (outcome *Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked{fmt.Sprint(r)}
		}
	}()
	outcome, err = n.step(step)
	if err == nil {
		err = n.observe(outcome, step.Lists)
	}
	return outcome, err
}

// abandonable runs a task, but waits only a few seconds: a panic can leave a lock closed.
func (n *node) abandonable(task func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		task()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
	}
}

func (n *node) step(step *Step) (*Outcome, error) {
	outcome := &Outcome{}
	switch {
	case step.Admit != nil:
		if !step.NoHints {
			outcome.Hints = n.hints(step.Admit)
		}
		return outcome, n.admitStep(step.Admit, outcome)
	case step.Register != nil:
		reply, err := n.register(step.Register)
		outcome.Registered = &reply
		return outcome, err
	case step.Watch != nil:
		reply, err := n.watch(step.Watch)
		outcome.Registered = &reply
		return outcome, err
	case step.Unwatch != "":
		return outcome, n.unwatchPlugin(step.Unwatch)
	case step.List != nil:
		return outcome, n.list(n.plugins[step.List.Resource], step.List.Devices)
	case step.ListOld != nil:
		if old := n.old[step.ListOld.Resource]; len(old) > 0 {
			return outcome, n.list(old[len(old)-1], step.ListOld.Devices)
		}
	case step.Stop != "":
		p := n.plugins[step.Stop]
		delete(n.plugins, step.Stop)
		return outcome, n.leave(p)
	case step.StopOld != "":
		return outcome, n.leaveOld(step.StopOld)
	case step.Grace != 0:
		passes(n.manager, time.Duration(step.Grace)*time.Second)
	case step.Restart != nil:
		var err error
		outcome.Readmitted, err = n.restart(step.Restart)
		return outcome, err
	case step.Start != "":
		if each := n.find(step.Start); each != nil && each.active && !each.retiring {
			outcome.Started = n.startPod(each)
		}
	case step.Finish != "":
		if each := n.find(step.Finish); each != nil {
			n.mutex.Lock()
			each.active, each.running = false, nil
			n.mutex.Unlock()
		}
	case step.Delete != "":
		n.remove(step.Delete)
	case step.Retire != "":
		if each := n.find(step.Retire); each != nil {
			each.retiring = true
			if !each.active || each.running.Len() == 0 {
				n.remove(step.Retire)
			}
		}
	case step.Exit != "":
		n.remove(step.Exit)
	}
	return outcome, nil
}

func run(in io.Reader, out io.Writer) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 64<<20)
	encoder := json.NewEncoder(out)
	for scanner.Scan() {
		found, err := answerTo(scanner.Bytes())
		if err != nil {
			return err
		}
		if err := encoder.Encode(found); err != nil {
			return err
		}
	}
	return scanner.Err()
}

func main() {
	klog.SetLogger(logr.Discard())
	var err error
	if len(os.Args) > 1 {
		err = benchMain(os.Args[1:])
	} else {
		err = run(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
