// Command checkpointread reads and writes kubelet_internal_checkpoint with the kubelet's
// own package, so that a test can compare another implementation with it.
//
//	checkpointread load DIR   reads the file in DIR as a starting kubelet does
//	checkpointread lines      responds to one JSON object per line on stdin:
//	                          {"entries": …, "registered_devices": …} → {"file": text}
//	                          {"file_base64": …}                      → as load
//
// The content is printed as {"entries", "registered_devices"}, a rejection as
// {"error": {"kind", "message"}} with kind absent, corrupt or unreadable.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	cperrors "k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

const fileName = "kubelet_internal_checkpoint"

type content struct {
	Entries    []checkpoint.PodDevicesEntry `json:"entries"`
	Registered map[string][]string          `json:"registered_devices"`
}

type request struct {
	content
	File []byte `json:"file_base64"`
}

type rejection struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func report(cp checkpoint.DeviceManagerCheckpoint, err error) any {
	if err == nil {
		entries, registered := cp.GetData()
		return content{entries, registered}
	}
	kind := "unreadable"
	switch {
	case errors.Is(err, cperrors.ErrCheckpointNotFound):
		kind = "absent"
	case errors.Is(err, cperrors.CorruptCheckpointError{}):
		kind = "corrupt"
	}
	return map[string]rejection{"error": {kind, err.Error()}}
}

func empty() checkpoint.DeviceManagerCheckpoint {
	return checkpoint.New([]checkpoint.PodDevicesEntry{}, map[string][]string{})
}

// loadDir does what readCheckpoint of the kubelet's device manager does at start.
func loadDir(dir string) any {
	manager, err := checkpointmanager.NewCheckpointManager(dir)
	if err != nil {
		return report(nil, err)
	}
	cp := empty()
	return report(cp, manager.GetCheckpoint(fileName, cp))
}

func loadText(text []byte) any {
	cp := empty()
	err := cp.UnmarshalCheckpoint(text)
	if err == nil {
		err = cp.VerifyChecksum()
	}
	return report(cp, err)
}

func answer(line []byte) (any, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	if r.File != nil {
		return loadText(r.File), nil
	}
	text, err := checkpoint.New(r.Entries, r.Registered).MarshalCheckpoint()
	return map[string]string{"file": string(text)}, err
}

func answerLines() error {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for scanner.Scan() {
		reply, err := answer(scanner.Bytes())
		if err != nil {
			return err
		}
		if err := out.Encode(reply); err != nil {
			return err
		}
	}
	return scanner.Err()
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "load":
		err = json.NewEncoder(os.Stdout).Encode(loadDir(os.Args[2]))
	case len(os.Args) == 2 && os.Args[1] == "lines":
		err = answerLines()
	default:
		err = fmt.Errorf("usage: checkpointread load DIR | checkpointread lines")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
