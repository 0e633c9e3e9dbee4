package main

import "encoding/json"

// Scenario is a line of input: the format of the vectors, and additional steps.
type Scenario struct {
	ID            string             `json:"id"`
	Runs          int                `json:"runs"`
	FeatureGates  map[string]bool    `json:"feature_gates"`
	NUMANodes     []int              `json:"numa_nodes"`
	NUMADistances [][]uint64         `json:"numa_distances"`
	Policy        string             `json:"policy"`
	Scope         string             `json:"scope"`
	PolicyOptions map[string]string  `json:"policy_options"`
	Resources     map[string]*Plugin `json:"resources"`
	Allocated     []Holding          `json:"allocated"`
	// Checkpoint is the file that lies there when the kubelet starts.
	Checkpoint []byte `json:"checkpoint"`
	// Node has allocatable amounts other than devices, as quantities.
	Node map[string]string `json:"node"`
	// Other describes a hint provider for CPUs and memory.
	Other      *Other   `json:"other"`
	ActivePods []string `json:"active_pods"`
	Pods       []*Pod   `json:"pods"`
	Steps      []Step   `json:"steps"`
}

// Plugin has the devices and responses of a plugin.
type Plugin struct {
	Devices       []Device `json:"devices"`
	Preferred     string   `json:"preferred"`
	AllocateError string   `json:"allocate_error"`
	EmptyReply    bool     `json:"empty_reply"`
	PreStart      bool     `json:"pre_start"`
	PreStartError string   `json:"pre_start_error"`
	// Response is a serialized ContainerAllocateResponse.
	Response []byte `json:"response"`
	// Program is a command with $DIRECTORY that serves the plugin in its own process.
	Program []string `json:"program"`
}

// Device is a device. If NUMA is nil, it has no topology; if empty, a topology without nodes.
type Device struct {
	ID     string  `json:"id"`
	Health string  `json:"health"`
	NUMA   []int64 `json:"numa"`
}

// Other is a provider of CPUs and memory with fixed hints and fixed results.
type Other struct {
	// Hints are the hints of each container that requests CPUs. Without them, it has no preference.
	Hints  []Hint        `json:"hints"`
	CPUs   []int64       `json:"cpus"`
	Memory []MemoryBlock `json:"memory"`
}

// MemoryBlock is memory on NUMA nodes.
type MemoryBlock struct {
	Type  string  `json:"type"`
	Size  uint64  `json:"size"`
	Nodes []int64 `json:"nodes"`
}

// Holding is an entry of the checkpoint at the start.
type Holding struct {
	PodUID    string             `json:"pod_uid"`
	Container string             `json:"container"`
	Resource  string             `json:"resource"`
	Devices   map[int64][]string `json:"devices"`
}

// Pod is a pod of the node.
type Pod struct {
	UID            string      `json:"uid"`
	Containers     []Container `json:"containers"`
	InitContainers []Container `json:"init_containers"`
	// PodLevel is true if the pod has resources of its own.
	PodLevel bool `json:"pod_level"`
	// Meanwhile is a pod that is admitted during the first Allocate of this one.
	Meanwhile *Pod `json:"meanwhile"`
}

// Container is a container of a pod.
type Container struct {
	Name        string           `json:"name"`
	Limits      map[string]int64 `json:"limits"`
	Restartable bool             `json:"restartable"`
}

// Step is a step of a scenario; exactly one field is set. Lists and NoHints can be added.
type Step struct {
	Admit    *Pod          `json:"admit"`
	List     *List         `json:"list"`
	ListOld  *List         `json:"list_old"`
	Register *Registration `json:"register"`
	Watch    *Registration `json:"watch"`
	Unwatch  string        `json:"unwatch"`
	Stop     string        `json:"stop"`
	StopOld  string        `json:"stop_old"`
	Start    string        `json:"start"`
	Finish   string        `json:"finish"`
	Delete   string        `json:"delete"`
	// Retire deletes a pod gracefully: it stays until its containers have exited.
	Retire  string   `json:"retire"`
	Exit    string   `json:"exit"`
	Restart *Restart `json:"restart"`
	// Grace is how many seconds pass for plugins that are away.
	Grace int `json:"grace"`
	// Lists asks PodResources after the step.
	Lists bool `json:"lists"`
	// NoHints admits a pod without asking for its hints before, which frees devices.
	NoHints bool `json:"no_hints"`
}

// Restart is a restart of the kubelet or of the node.
type Restart struct {
	Reboot bool `json:"reboot"`
	// Checkpoint replaces the file while no kubelet runs; Lost removes it.
	Checkpoint []byte `json:"checkpoint"`
	Lost       bool   `json:"lost"`
	// Before has plugins that register before pods are admitted again.
	Before []*Registration `json:"before"`
}

// List is a new device list of a plugin.
type List struct {
	Resource string   `json:"resource"`
	Devices  []Device `json:"devices"`
}

// Registration is a plugin that registers, and then sends its device list if it has one.
type Registration struct {
	Resource   string `json:"resource"`
	SameSocket bool   `json:"same_socket"`
	Version    string `json:"version"`
	Plugin
}

// Outcome is the result of a step, and the state after it.
type Outcome struct {
	Admit      *bool              `json:"admit,omitempty"`
	Reason     string             `json:"reason"`
	Message    string             `json:"message"`
	Hints      map[string]any     `json:"hints,omitempty"`
	Affinity   map[string]*Hint   `json:"affinity,omitempty"`
	Readmitted map[string]Verdict `json:"readmitted,omitempty"`
	Registered *Reply             `json:"registered,omitempty"`
	Meanwhile  *Verdict           `json:"meanwhile,omitempty"`
	Started    map[string]any     `json:"started,omitempty"`

	Calls         []Call                                    `json:"calls"`
	Devices       map[string]map[string]map[string][]string `json:"devices"`
	Capacity      map[string]int64                          `json:"capacity"`
	Allocatable   map[string]int64                          `json:"allocatable"`
	Checkpoint    []byte                                    `json:"checkpoint"`
	Written       bool                                      `json:"written"`
	HealthUpdates []string                                  `json:"health_updates"`
	Status        map[string]any                            `json:"status,omitempty"`
	Lists         map[string]json.RawMessage                `json:"lists,omitempty"`
}

// Verdict is the result of an admission.
type Verdict struct {
	Admit   bool   `json:"admit"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Reply is the error of a registration: its gRPC code and its text.
type Reply struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Hint is a set of NUMA nodes and its preference; without nodes it has no affinity.
type Hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

// Call is a call that a plugin received.
type Call struct {
	Method      string   `json:"method"`
	Resource    string   `json:"resource"`
	Plugin      string   `json:"plugin"`
	Devices     []string `json:"devices,omitempty"`
	Available   []string `json:"available,omitempty"`
	MustInclude []string `json:"must_include,omitempty"`
	Size        *int32   `json:"size,omitempty"`
}
