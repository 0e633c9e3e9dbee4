package main

import "encoding/json"

// Scenario is a line of input: the format of the vectors, and additional steps.
type Scenario struct {
	ID            string             `json:"id"`
	Runs          int                `json:"runs"`
	Quiet         bool               `json:"quiet"`
	FeatureGates  map[string]bool    `json:"feature_gates"`
	NUMANodes     []int              `json:"numa_nodes"`
	NUMADistances [][]uint64         `json:"numa_distances"`
	Policy        string             `json:"policy"`
	Scope         string             `json:"scope"`
	PolicyOptions map[string]string  `json:"policy_options"`
	Resources     map[string]*Plugin `json:"resources"`
	Allocated     []Holding          `json:"allocated"`
	ActivePods    []string           `json:"active_pods"`
	Pods          []*Pod             `json:"pods"`
	Steps         []Step             `json:"steps"`
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
}

// Device is a device. If NUMA is nil, it has no topology; if empty, a topology without nodes.
type Device struct {
	ID     string  `json:"id"`
	Health string  `json:"health"`
	NUMA   []int64 `json:"numa"`
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
}

// Container is a container of a pod.
type Container struct {
	Name        string           `json:"name"`
	Limits      map[string]int64 `json:"limits"`
	Restartable bool             `json:"restartable"`
}

// Step is a step of a scenario; exactly one field is set.
type Step struct {
	Admit    *Pod          `json:"admit"`
	List     *List         `json:"list"`
	Register *Registration `json:"register"`
	Stop     string        `json:"stop"`
	StopOld  string        `json:"stop_old"`
	Start    string        `json:"start"`
	Finish   string        `json:"finish"`
	Delete   string        `json:"delete"`
	Restart  string        `json:"restart"`
}

// List is a new device list of a plugin.
type List struct {
	Resource string   `json:"resource"`
	Devices  []Device `json:"devices"`
}

// Registration is a plugin that registers, and then sends its device list.
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
	Registered *string            `json:"registered,omitempty"`
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

// Hint is a set of NUMA nodes and its preference; without nodes it has no affinity.
type Hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

// Call is a call that a plugin received.
type Call struct {
	Method      string   `json:"method"`
	Resource    string   `json:"resource"`
	Devices     []string `json:"devices,omitempty"`
	Available   []string `json:"available,omitempty"`
	MustInclude []string `json:"must_include,omitempty"`
	Size        *int32   `json:"size,omitempty"`
}
