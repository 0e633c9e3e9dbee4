// Package lines connects the programs with a test: events are written to stdout, one JSON
// object per line, and commands are read as words from stdin.
package lines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Fields are the members of an event, except its name.
type Fields map[string]any

var stdout sync.Mutex

// Emit writes one event. It is safe for concurrent use: lines are never mixed.
func Emit(event string, fields Fields) {
	line := Fields{"event": event}
	for name, value := range fields {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		Fatal(fmt.Errorf("event %s does not encode: %w", event, err))
	}
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Println(string(text))
}

// Fatal ends the program with one line on stderr.
func Fatal(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// Commands sends the lines of r, split into words. It closes the channel at the end of r, so that
// a program exits when the process that controls it has exited.
func Commands(r io.Reader) <-chan []string {
	commands := make(chan []string)
	go func() {
		defer close(commands)
		scanner := bufio.NewScanner(r)
		for scanner.Scan() {
			if words := strings.Fields(scanner.Text()); len(words) > 0 {
				commands <- words
			}
		}
	}()
	return commands
}

// List splits "a,b" into its items; "" and "-" are the empty list.
func List(text string) []string {
	if text == "" || text == "-" {
		return []string{}
	}
	return strings.Split(text, ",")
}
