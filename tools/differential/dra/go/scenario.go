package main

import "google.golang.org/grpc/codes"

// The format is that of the recorded scenarios (`python -m tools.replay dra`).

// Scenario is a line on stdin.
type Scenario struct {
	ID        string               `json:"id"`
	Runs      int                  `json:"runs"`
	Gates     map[string]bool      `json:"gates"`
	Pods      map[string]*Pod      `json:"pods"`
	Instances map[string]*Instance `json:"instances"`
	Ops       []Op                 `json:"ops"`
}

type Pod struct {
	Name       string      `json:"name"`
	Namespace  string      `json:"namespace"`
	UID        string      `json:"uid"`
	Claims     []PodClaim  `json:"claims"`
	Statuses   []PodClaim  `json:"statuses"`
	Extended   *Extended   `json:"extended"`
	PodGroup   string      `json:"pod_group"`
	Containers []Container `json:"containers"`
}

// PodClaim is an entry of spec.resourceClaims, or of status.resourceClaimStatuses.
type PodClaim struct {
	Name     string  `json:"name"`
	Claim    *string `json:"claim"`
	Template *string `json:"template"`
}

type Extended struct {
	Claim    string `json:"claim"`
	Mappings []struct {
		Container string `json:"container"`
		Resource  string `json:"resource"`
		Request   string `json:"request"`
	} `json:"mappings"`
}

type Container struct {
	Name   string `json:"name"`
	Init   bool   `json:"init"`
	Claims []struct {
		Name    string `json:"name"`
		Request string `json:"request,omitempty"`
	} `json:"claims"`
	Requests map[string]any `json:"requests"`
}

// Instance is a driver's process with an endpoint of its own.
type Instance struct {
	Driver    string     `json:"driver"`
	Services  []string   `json:"services"`
	Serves    []string   `json:"serves"`
	Down      bool       `json:"down"`
	Prepare   *Behaviour `json:"prepare"`
	Unprepare *Behaviour `json:"unprepare"`
}

// Behaviour is how an instance answers one method.
type Behaviour struct {
	Claims map[string]Entry `json:"claims"`
	Skip   []string         `json:"skip"`
	Extra  map[string]Entry `json:"extra"`
	Fail   *struct {
		Code    codes.Code `json:"code"`
		Message string     `json:"message"`
	} `json:"fail"`
	Hang  bool `json:"hang"`
	Block bool `json:"block"`
}

type Entry struct {
	Devices []Device `json:"devices"`
	Error   string   `json:"error"`
}

type Device struct {
	Requests []string `json:"requests"`
	Pool     string   `json:"pool"`
	Device   string   `json:"device"`
	CDI      []string `json:"cdi"`
	ShareID  *string  `json:"share_id"`
}

// Claim is a ResourceClaim of the API server.
type Claim struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UID         string `json:"uid"`
	Unallocated bool   `json:"unallocated"`
	Results     []struct {
		Driver  string   `json:"driver"`
		Pool    string   `json:"pool"`
		Device  string   `json:"device"`
		Request string   `json:"request"`
		Skip    []string `json:"skip"`
	} `json:"results"`
	Reserved       []string `json:"reserved"`
	ReservedGroups []string `json:"reserved_groups"`
	Owner          string   `json:"owner"`
	OwnerGroup     string   `json:"owner_group"`
}

// Health is an entry of a health report.
type Health struct {
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	Health  string `json:"health"`
	Message string `json:"message"`
	Timeout int64  `json:"timeout"`
}

// Op is a step; which fields it has depends on the operation.
type Op struct {
	Op        string     `json:"op"`
	Name      string     `json:"name"`
	Namespace string     `json:"namespace"`
	Instance  string     `json:"instance"`
	Services  *[]string  `json:"services"`
	Pod       string     `json:"pod"`
	Container string     `json:"container"`
	Set       *Pod       `json:"set"`
	Claim     *Claim     `json:"claim"`
	Code      int        `json:"code"`
	Message   string     `json:"message"`
	Times     int        `json:"times"`
	Active    []string   `json:"active"`
	NotReady  bool       `json:"not_ready"`
	File      *string    `json:"file"`
	Seconds   float64    `json:"seconds"`
	Devices   []Health   `json:"devices"`
	Prepare   *Behaviour `json:"prepare"`
	Unprepare *Behaviour `json:"unprepare"`
	Do        *Op        `json:"do"`
}

// Result is what a step led to. Absent fields are empty.
type Result map[string]any
