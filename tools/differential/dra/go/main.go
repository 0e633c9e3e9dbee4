// Command reference runs scenarios in the kubelet's DRA manager, and prints its answers, calls and
// files.
//
//	reference DIRECTORY   answers each line on stdin, a Scenario as JSON, with a line on stdout:
//	                      {"id", "runs": [{"steps": [Result, …], "panic": text}, …]} or
//	                      {"id", "failed"}
//
// DIRECTORY holds the state files and the sockets. Its path must be short, since it is part of the
// sockets' paths.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

type answer struct {
	ID     string    `json:"id"`
	Runs   []outcome `json:"runs,omitempty"`
	Failed string    `json:"failed,omitempty"`
}

// outcome has the results of one run. After a panic of the kubelet there are no more.
type outcome struct {
	Steps []Result `json:"steps"`
	Panic string   `json:"panic,omitempty"`
}

// panicked is a panic of the kubelet.
type panicked struct{ text string }

func (p panicked) Error() string { return "panic: " + p.text }

func answerTo(line []byte, dir string) (*answer, error) {
	scenario := &Scenario{}
	if err := json.Unmarshal(line, scenario); err != nil {
		return nil, err
	}
	found := &answer{ID: scenario.ID}
	if err := setGates(scenario.Gates); err != nil {
		return nil, err
	}
	for run := 0; run < max(1, scenario.Runs); run++ {
		steps, err := play(scenario, dir)
		ended := panicked{}
		if err != nil && !errors.As(err, &ended) {
			found.Failed, found.Runs = err.Error(), nil
			return found, nil
		}
		found.Runs = append(found.Runs, outcome{steps, ended.text})
	}
	return found, nil
}

// play runs all steps on a new node.
func play(scenario *Scenario, dir string) ([]Result, error) {
	n, err := newNode(scenario, dir)
	if err != nil {
		return nil, err
	}
	defer n.abandonable(n.end)
	steps := []Result{}
	for number := range scenario.Ops {
		result, err := n.limitedStep(&scenario.Ops[number])
		if err != nil {
			return steps, fmt.Errorf("step %d: %w", number, err)
		}
		steps = append(steps, result)
	}
	return steps, nil
}

// limitedStep does a step, but waits only a minute: a deadlock must not end the whole run.
func (n *node) limitedStep(op *Op) (result Result, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = n.step(op)
	}()
	select {
	case <-done:
		return result, err
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%s takes too long", op.Op)
	}
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

func run(in io.Reader, out io.Writer, dir string) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 64<<20)
	encoder := json.NewEncoder(out)
	for scanner.Scan() {
		found, err := answerTo(scanner.Bytes(), dir)
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
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
