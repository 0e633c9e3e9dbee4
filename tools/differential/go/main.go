// Command reference runs scenarios in the kubelet's device manager, topology manager and
// PodResources server, and prints their decisions, files and responses.
//
//	reference   answers each line on stdin, a Scenario as JSON, with a line on stdout:
//	            {"id", "runs": [[Outcome, …], …]} or {"id", "config_error"} or {"id", "failed"}
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

	"github.com/go-logr/logr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
)

// configError is a rejection of the topology manager's configuration.
type configError struct{ error }

type answer struct {
	ID          string      `json:"id"`
	Runs        [][]Outcome `json:"runs,omitempty"`
	ConfigError string      `json:"config_error,omitempty"`
	Failed      string      `json:"failed,omitempty"`
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
		outcomes, err := play(scenario)
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
	for name, value := range gates {
		if _, known := defaults[name]; !known {
			defaults[name] = utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
		}
		wanted[name] = value
	}
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
}

func play(scenario *Scenario) (outcomes []Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	n, err := newNode(scenario)
	if err != nil {
		return nil, err
	}
	defer n.stop()
	for _, resource := range slices.Sorted(maps.Keys(scenario.Resources)) {
		plugin := scenario.Resources[resource]
		text, err := n.register(&Registration{Resource: resource, Plugin: *plugin})
		if err != nil || text != "" {
			return nil, fmt.Errorf("%s does not register: %s %w", resource, text, err)
		}
	}
	n.ready = true
	n.seen = n.written()
	steps := scenario.Steps
	for _, pod := range scenario.Pods {
		steps = append(steps, Step{Admit: pod})
	}
	for i, step := range steps {
		outcome, err := n.step(&step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		if err := n.observe(outcome, i == len(steps)-1); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		outcomes = append(outcomes, *outcome)
	}
	return outcomes, nil
}

func (n *node) step(step *Step) (*Outcome, error) {
	outcome := &Outcome{}
	switch {
	case step.Admit != nil:
		outcome.Hints = n.hints(step.Admit)
		each, verdict := n.admit(step.Admit)
		outcome.Admit, outcome.Reason, outcome.Message = &verdict.Admit, verdict.Reason, verdict.Message
		if verdict.Admit {
			outcome.Affinity = n.affinity(each.pod)
		}
	case step.Register != nil:
		text, err := n.register(step.Register)
		outcome.Registered = &text
		return outcome, err
	case step.List != nil:
		return outcome, n.list(n.plugins[step.List.Resource], step.List.Devices)
	case step.Stop != "":
		p := n.plugins[step.Stop]
		delete(n.plugins, step.Stop)
		return outcome, n.leave(p)
	case step.StopOld != "":
		return outcome, n.leaveOld(step.StopOld)
	case step.Restart != "":
		var err error
		outcome.Readmitted, err = n.restart(step.Restart == "reboot")
		return outcome, err
	case step.Start != "":
		if each := n.find(step.Start); each != nil && each.active {
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
