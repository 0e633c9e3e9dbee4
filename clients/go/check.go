package mockkubelet

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Verdict is the result of one conformance check; docs/conformance-checks.md describes them all.
type Verdict struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	// pass, fail, warn, skip, waived or error
	Outcome string `json:"outcome"`
	// What the check observed; for a skip, the reason.
	Seen       string   `json:"seen"`
	Expects    string   `json:"expects"`
	Production string   `json:"production"`
	Links      []string `json:"links"`
	Reproduce  string   `json:"reproduce"`
	Output     []string `json:"output"`
	Timeline   []struct {
		Time   float64 `json:"time"`
		Source string  `json:"source"`
		Text   string  `json:"text"`
	} `json:"timeline"`
}

// Check certifies a device plugin or a DRA driver. It runs "devicemanager check" with the options
// and the program's command, and reports each check as a subtest. In the command of a plugin,
// {plugin_dir} stands for the directory of kubelet.sock. For a driver, use the option --driver; its
// command has the placeholders {kubeconfig}, {node_name}, {registrar_dir}, {plugins_dir}, {cdi_dir}
// and {pod_uid}. Checks that do not apply are skipped; warnings are logged.
func Check(t *testing.T, options []string, plugin ...string) {
	t.Helper()
	arguments := append([]string{"check", "-o", "json"}, options...)
	command := exec.Command(program(), append(append(arguments, "--"), plugin...)...)
	var printed strings.Builder
	command.Stderr = &printed
	answer, err := command.Output()
	var report struct {
		Checks []Verdict `json:"checks"`
	}
	if json.Unmarshal(answer, &report) != nil || len(report.Checks) == 0 {
		t.Fatalf("devicemanager check: %v: %s", err, strings.TrimSpace(printed.String()))
	}
	for _, verdict := range report.Checks {
		t.Run(verdict.ID, func(t *testing.T) {
			switch verdict.Outcome {
			case "fail", "error":
				t.Error(verdict)
			case "skip", "waived":
				t.Skip(verdict.Seen)
			case "warn":
				t.Log(verdict)
			}
		})
	}
}

// String describes the result, with the plugin's output and the events that led to it.
func (v Verdict) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %s\n  check:     %s %s\n  expected:  %s\n  on a node: %s\n",
		v.ID, v.Outcome, v.Seen, v.Severity, v.Title, v.Expects, v.Production)
	for _, link := range v.Links {
		fmt.Fprintf(&text, "  see:       %s\n", link)
	}
	fmt.Fprintf(&text, "  again:     %s\n", v.Reproduce)
	for _, line := range v.Timeline {
		fmt.Fprintf(&text, "    %8.3f s %-8s %s\n", line.Time, line.Source, line.Text)
	}
	for _, line := range v.Output {
		fmt.Fprintf(&text, "    | %s\n", line)
	}
	return text.String()
}
