// Code generated from docs/openapi.json by tools/go_client.py. DO NOT EDIT.

package mockkubelet

// Admission: What became of a pod: its containers' devices and settings, or the rejection.
type Admission struct {
	Schema   string `json:"schema"`
	Pod      Pod    `json:"pod"`
	Admitted bool   `json:"admitted"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	// by name; empty for a rejection
	Containers map[string]ContainerOutcome `json:"containers"`
	// policy, steps, holders and text; see docs/json.md
	Explanation map[string]any `json:"explanation"`
	// the same with a drawing, for people
	ExplanationText string `json:"explanation_text"`
}

// Advance: How far the clock is turned.
type Advance struct {
	Seconds float64 `json:"seconds"`
}

// Allocate: Allocate for one container, or for several: give either ids or containers.
type Allocate struct {
	Resource string `json:"resource"`
	// of one container
	Ids []string `json:"ids,omitempty"`
	// ids of each container
	Containers [][]string `json:"containers,omitempty"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Allocated: The settings of each container response, as many as the plugin sent.
type Allocated struct {
	Schema     string              `json:"schema"`
	Containers []ContainerSettings `json:"containers"`
}

// Call: One RPC between the kubelet and a plugin, or one message of a ListAndWatch stream. Of the
// rpc "dropped": so many (response.dropped) are missing at this place, since the kubelet does
// not remember them any more.
type Call struct {
	Schema string `json:"schema"`
	// calls are numbered from 1, as they end
	Number int64 `json:"number"`
	// when it began, in seconds since the epoch
	Time     float64 `json:"time"`
	Resource *string `json:"resource"`
	// the plugin's endpoint
	Plugin string `json:"plugin"`
	// to-plugin or to-kubelet
	Direction string `json:"direction"`
	// the method, such as Allocate
	RPC string `json:"rpc"`
	// which list of its stream it is, from 1
	StreamMessage *int64 `json:"stream_message"`
	// with the .proto file's names
	Request map[string]any `json:"request"`
	// null if there was none
	Response map[string]any `json:"response"`
	// OK, or the status code's name
	Code    string `json:"code"`
	Message string `json:"message"`
	// seconds
	Duration float64 `json:"duration"`
	// the latest event when it ended
	AfterEvent int64 `json:"after_event"`
	// the faults that had a part in it, if any
	Fault string `json:"fault"`
	// null unless asked for
	RequestBytes  *string `json:"request_bytes"`
	ResponseBytes *string `json:"response_bytes"`
}

// CallWait: Until the next call that matches has ended.
type CallWait struct {
	Resource *string `json:"resource,omitempty"`
	// the method, such as Allocate
	RPC *string `json:"rpc,omitempty"`
	// of this endpoint
	Plugin *string `json:"plugin,omitempty"`
	// that asks for exactly these devices
	DeviceIds []string `json:"device_ids,omitempty"`
	// it has at least this
	Request map[string]any `json:"request,omitempty"`
	// it has at least this
	Response map[string]any `json:"response,omitempty"`
	// with this status code, such as OK
	Code *string `json:"code,omitempty"`
	// later than this: latest_event and latest_call of the node; null: now
	Since *Mark `json:"since,omitempty"`
	// with the messages as they were, in base64
	Bytes *bool `json:"bytes,omitempty"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Cleared: How many faults were taken back.
type Cleared struct {
	Schema string `json:"schema"`
	Count  int64  `json:"count"`
}

// Clock: The kubelet's clock.
type Clock struct {
	Schema string `json:"schema"`
	// whether it stands still until it is advanced
	Manual bool `json:"manual"`
	// seconds; never goes back
	Monotonic float64 `json:"monotonic"`
	// seconds since the epoch
	Time float64 `json:"time"`
}

// Conflict: One key with two different values, from two sources or from the same one.
//
// `kind` is the setting: `env`, `mount`, `mount access`, `device`,
// `device permissions`, `annotation` or `network interface`. `kept_by` and
// `dropped_by` are resource names, or other sources such as a CDI device. The value of
// `kept_by` is used.
type Conflict struct {
	Kind         string `json:"kind"`
	Key          string `json:"key"`
	KeptBy       string `json:"kept_by"`
	KeptValue    string `json:"kept_value"`
	DroppedBy    string `json:"dropped_by"`
	DroppedValue string `json:"dropped_value"`
}

// ContainerOutcome: One container of an admitted pod: its devices, and its settings as far as they can be
// had.
type ContainerOutcome struct {
	// resource to device ids, sorted
	Devices map[string][]string `json:"devices"`
	// claim to devices, as pool/device
	Claims map[string][]string `json:"claims"`
	// to which it was aligned; null for no affinity
	NUMANodes     []int64     `json:"numa_nodes"`
	Settings      *RunOptions `json:"settings"`
	SettingsError *string     `json:"settings_error"`
	// part of an OCI configuration, as a runtime of this host would be told
	OCI      map[string]any `json:"oci"`
	OCIError *string        `json:"oci_error"`
	// why the container did not start; null if it did
	StartError *string `json:"start_error"`
}

// ContainerSettings: One ContainerAllocateResponse, in the plugin's order.
//
// `filesystem_devices`, `network_interfaces` and `pci_devices` come from typed
// devices, which a plugin can send in addition to the other fields.
type ContainerSettings struct {
	Envs              map[string]string  `json:"envs,omitempty"`
	Mounts            []Mount            `json:"mounts,omitempty"`
	Devices           []DeviceSpec       `json:"devices,omitempty"`
	Annotations       map[string]string  `json:"annotations,omitempty"`
	CDIDevices        []string           `json:"cdi_devices,omitempty"`
	NetworkInterfaces []NetworkInterface `json:"network_interfaces,omitempty"`
	PCIDevices        []PciDevice        `json:"pci_devices,omitempty"`
	FilesystemDevices []DeviceSpec       `json:"filesystem_devices,omitempty"`
}

// ContainerState: One of the three; the others are null. Times are seconds since the epoch, and null if an
// earlier kubelet started the container.
type ContainerState struct {
	Waiting    *Waiting    `json:"waiting,omitempty"`
	Running    *Running    `json:"running,omitempty"`
	Terminated *Terminated `json:"terminated,omitempty"`
}

// ContainerStatus: The status of one container, as the Kubernetes API has it.
type ContainerStatus struct {
	Schema string         `json:"schema"`
	Name   string         `json:"name"`
	State  ContainerState `json:"state"`
	// how it ended the time before
	LastTermination *Terminated `json:"last_termination"`
	RestartCount    int64       `json:"restart_count"`
}

// ContainerStatusList: The statuses of a pod's containers, init containers first.
type ContainerStatusList struct {
	Schema string            `json:"schema"`
	Items  []ContainerStatus `json:"items"`
}

// Delete: How long the containers of a pod have to end.
type Delete struct {
	// seconds, 1 at least; null: the pod's terminationGracePeriodSeconds
	GracePeriod *float64 `json:"grace_period,omitempty"`
}

// DeviceList: Devices, sorted by resource and id.
type DeviceList struct {
	Schema string         `json:"schema"`
	Items  []DeviceStatus `json:"items"`
}

// DeviceSpec: A device node in the container.
//
// `permissions` is the plugin's text, made of the letters r (read), w (write), m (mknod).
type DeviceSpec struct {
	ContainerPath string  `json:"container_path"`
	HostPath      string  `json:"host_path"`
	Permissions   *string `json:"permissions,omitempty"`
}

// DeviceStatus: One device.
type DeviceStatus struct {
	Resource  string  `json:"resource"`
	ID        string  `json:"id"`
	Health    Health  `json:"health"`
	NUMANodes []int64 `json:"numa_nodes"`
	Pod       *string `json:"pod,omitempty"`
	Container *string `json:"container,omitempty"`
}

// Event: One thing that happened. Of the kind events-dropped: so many (details.dropped) are
// missing at this place, since the kubelet does not remember them any more.
type Event struct {
	Schema string `json:"schema"`
	// events are numbered from 1
	Number int64 `json:"number"`
	// seconds since the epoch, by the kubelet's clock
	Time     float64 `json:"time"`
	Kind     string  `json:"kind"`
	Message  string  `json:"message"`
	Warning  bool    `json:"warning"`
	Resource *string `json:"resource"`
	// the UID of the pod concerned
	Pod     *string        `json:"pod"`
	Details map[string]any `json:"details"`
}

// EventWait: Until the next event that matches.
type EventWait struct {
	// none given: of any kind
	Kinds    []string `json:"kinds,omitempty"`
	Resource *string  `json:"resource,omitempty"`
	// of the pod with this UID
	Pod *string `json:"pod,omitempty"`
	// its message contains this
	Text *string `json:"text,omitempty"`
	// later than the event of this number; null: than now
	After *int64 `json:"after,omitempty"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// ExitContainer: How a container ends.
type ExitContainer struct {
	ExitCode *int64 `json:"exit_code,omitempty"`
	// such as OOMKilled; empty: Completed for exit code 0, else Error
	Reason *string `json:"reason,omitempty"`
}

// Fault: A fault that was set; see docs/faults.md for the kinds and their options.
type Fault struct {
	Schema string `json:"schema"`
	// faults are numbered from 1
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
	// the line that sets it
	Spec string `json:"spec"`
	// those that are not at their default
	Options map[string]any `json:"options"`
	// how many occasions have been the fault's
	Seen int64 `json:"seen"`
	// at how many of them it fired
	Fired int64 `json:"fired"`
	// how many calls or streams it holds up now
	Holding int64 `json:"holding"`
	// whether it has fired as often as it may
	Spent bool `json:"spent"`
}

// FaultList: The faults that were set and not cleared, in the order in which they were set.
type FaultList struct {
	Schema string `json:"schema"`
	// decides where a fault has a probability
	Seed  int64   `json:"seed"`
	Items []Fault `json:"items"`
}

// Finish: How a pod's app containers end.
type Finish struct {
	// one for all, or by container (0 where not given)
	ExitCodes any `json:"exit_codes,omitempty"`
}

// Finished: The phase of a pod that has ended by itself.
type Finished struct {
	Schema string `json:"schema"`
	Phase  Phase  `json:"phase"`
}

// GetOptions: GetDevicePluginOptions.
type GetOptions struct {
	Resource string `json:"resource"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// GetPreferred: GetPreferredAllocation for one container.
type GetPreferred struct {
	Resource string `json:"resource"`
	// ids to choose from
	Available []string `json:"available"`
	// ids that have to be among them
	MustInclude []string `json:"must_include,omitempty"`
	// how many devices are wanted
	Size int64 `json:"size"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Health: Health of a device, as `ResourceHealthStatus` in the Kubernetes API.
type Health string

// Mark: A moment among the events and calls of a kubelet, for `since=`.
type Mark struct {
	Event int64 `json:"event"`
	Call  int64 `json:"call"`
}

// Mount: A host directory or file mounted into the container.
type Mount struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	ReadOnly      *bool  `json:"read_only,omitempty"`
}

// NetworkInterface: A network interface that is moved into the container's network namespace.
//
// `net_ns` is the path of its present namespace; empty for the host's namespace.
type NetworkInterface struct {
	HostName      string  `json:"host_name"`
	ContainerName string  `json:"container_name"`
	NetNs         *string `json:"net_ns,omitempty"`
}

// Node: The node and where its kubelet's files are.
type Node struct {
	Schema         string `json:"schema"`
	Name           string `json:"name"`
	KubeletVersion string `json:"kubelet_version"`
	// false while the kubelet is stopped
	Serving bool `json:"serving"`
	// the number of the latest event; 0 for none
	LatestEvent int64 `json:"latest_event"`
	// the number of the latest call; 0 for none
	LatestCall int64 `json:"latest_call"`
	// calls that are not remembered any more
	DroppedCalls       int64  `json:"dropped_calls"`
	Root               string `json:"root"`
	PluginDir          string `json:"plugin_dir"`
	PluginSocket       string `json:"plugin_socket"`
	PodResourcesSocket string `json:"pod_resources_socket"`
	PluginsRegistryDir string `json:"plugins_registry_dir"`
	CheckpointPath     string `json:"checkpoint_path"`
	ClaimsStatePath    string `json:"claims_state_path"`
}

// NodeStatus: Devices by resource as the node's status has them: a resource that was removed stays,
// at 0.
type NodeStatus struct {
	Schema      string           `json:"schema"`
	Capacity    map[string]int64 `json:"capacity"`
	Allocatable map[string]int64 `json:"allocatable"`
}

// PciDevice: A PCI device, identified by vendor and product id of four hexadecimal digits each.
//
// `addresses` (`0000:3b:00.0`) are empty until the ids are resolved on a host.
type PciDevice struct {
	VendorID  string   `json:"vendor_id"`
	ProductID string   `json:"product_id"`
	Addresses []string `json:"addresses,omitempty"`
}

// PendingCall: A call that is not answered yet, or a list stream that is open.
type PendingCall struct {
	// when it began, in seconds since the epoch
	Time      float64 `json:"time"`
	Resource  *string `json:"resource"`
	Plugin    string  `json:"plugin"`
	Direction string  `json:"direction"`
	RPC       string  `json:"rpc"`
	// of the stream so far
	Messages int64 `json:"messages"`
}

// PendingCallList: Calls in progress, the oldest first.
type PendingCallList struct {
	Schema string        `json:"schema"`
	Items  []PendingCall `json:"items"`
}

// Phase: `status.phase`.
type Phase string

// PluginList: The plugin of each known resource, sorted by resource.
type PluginList struct {
	Schema string         `json:"schema"`
	Items  []PluginStatus `json:"items"`
}

// PluginOptions: DevicePluginOptions, as returned by GetDevicePluginOptions.
type PluginOptions struct {
	PreStartRequired                *bool `json:"pre_start_required,omitempty"`
	GetPreferredAllocationAvailable *bool `json:"get_preferred_allocation_available,omitempty"`
}

// PluginStatus: The plugin of one resource.
type PluginStatus struct {
	Resource                        string `json:"resource"`
	Endpoint                        string `json:"endpoint"`
	Connected                       bool   `json:"connected"`
	PreStartRequired                bool   `json:"pre_start_required"`
	GetPreferredAllocationAvailable bool   `json:"get_preferred_allocation_available"`
	Capacity                        int64  `json:"capacity"`
	Allocatable                     int64  `json:"allocatable"`
}

// Pod: A pod that is known and not deleted.
type Pod struct {
	Schema    string `json:"schema"`
	UID       string `json:"uid"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Phase     Phase  `json:"phase"`
	// why it was rejected; else empty
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// whether it has been admitted once
	Admitted       bool           `json:"admitted"`
	RestartPolicy  RestartPolicy  `json:"restart_policy"`
	Containers     []PodContainer `json:"containers"`
	InitContainers []PodContainer `json:"init_containers"`
	// name in the pod to the name of the claim
	ResourceClaims map[string]*string `json:"resource_claims"`
}

// PodContainer: One container of a pod's spec and what became of it.
type PodContainer struct {
	Name     string           `json:"name"`
	Limits   map[string]int64 `json:"limits"`
	Requests map[string]int64 `json:"requests"`
	// an init container with restartPolicy Always
	Restartable bool     `json:"restartable"`
	Claims      []string `json:"claims"`
	Running     bool     `json:"running"`
	// an init container that has ended
	Finished bool `json:"finished"`
}

// PodDevices: What a pod holds.
type PodDevices struct {
	Schema string `json:"schema"`
	// container to resource to device ids, sorted
	Containers map[string]map[string][]string `json:"containers"`
}

// PodList: Pods, in the order in which they came.
type PodList struct {
	Schema string `json:"schema"`
	Items  []Pod  `json:"items"`
}

// PodResourcesStatus: allocatedResourcesStatus by container.
type PodResourcesStatus struct {
	Schema     string                      `json:"schema"`
	Containers map[string][]ResourceStatus `json:"containers"`
}

// PreStart: PreStartContainer with these devices.
type PreStart struct {
	Resource string   `json:"resource"`
	Ids      []string `json:"ids"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Preferred: The ids of each container response, as many as the plugin sent and in its order.
type Preferred struct {
	Schema     string     `json:"schema"`
	Containers [][]string `json:"containers"`
}

// Problem: Why a request was not met (RFC 9457).
type Problem struct {
	Type *string `json:"type,omitempty"`
	// the HTTP status in words
	Title  string `json:"title"`
	Status int64  `json:"status"`
	// one line: what, where, what to do
	Detail string `json:"detail"`
	// a fixed word for programs, such as not-found
	Reason string `json:"reason"`
	// of a wait that failed: what did happen, in lines
	Report *string `json:"report,omitempty"`
	// of invalid objects: a line for each rule broken
	Problems []string `json:"problems,omitempty"`
	// of a call to a plugin that failed
	RPCStatus RpcStatus `json:"rpc_status,omitempty"`
}

// Resource: One resource of a device plugin that the kubelet knows.
type Resource struct {
	Name string `json:"name"`
	// devices, healthy or not
	Capacity int64 `json:"capacity"`
	// healthy devices, in use or not
	Allocatable int64 `json:"allocatable"`
}

// ResourceHealth: The health of one allocated device.
type ResourceHealth struct {
	ResourceID string `json:"resource_id"`
	Health     Health `json:"health"`
}

// ResourceList: Resources, sorted by name.
type ResourceList struct {
	Schema string     `json:"schema"`
	Items  []Resource `json:"items"`
}

// ResourceStatus: One resource of a container; the devices are sorted by id.
type ResourceStatus struct {
	Name      string           `json:"name"`
	Resources []ResourceHealth `json:"resources"`
}

// ResourceWait: Until so many devices of a resource are allocatable.
type ResourceWait struct {
	Resource string `json:"resource"`
	// null: any
	Count *int64 `json:"count,omitempty"`
	// seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// RestartPolicy: `spec.restartPolicy`: which containers the kubelet restarts.
type RestartPolicy string

// RpcStatus: The status with which a plugin answered a call, or that stands for no answer.
type RpcStatus struct {
	// the code's name, such as NotFound
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RunOptions: Merged settings of all resources of a container (`DeviceRunContainerOptions`, v1.32).
//
// Sorted by name or container path, so that equal input gives equal output. CDI names of one
// resource keep the plugin's order, because a runtime applies them in that order. Typed
// filesystem devices are part of `devices`.
type RunOptions struct {
	Envs              map[string]string  `json:"envs,omitempty"`
	Mounts            []Mount            `json:"mounts,omitempty"`
	Devices           []DeviceSpec       `json:"devices,omitempty"`
	Annotations       map[string]string  `json:"annotations,omitempty"`
	CDIDevices        []string           `json:"cdi_devices,omitempty"`
	NetworkInterfaces []NetworkInterface `json:"network_interfaces,omitempty"`
	PCIDevices        []PciDevice        `json:"pci_devices,omitempty"`
	Conflicts         []Conflict         `json:"conflicts,omitempty"`
}

// Running: A running container.
type Running struct {
	StartedAt *float64 `json:"started_at,omitempty"`
}

// SetFault: A fault to set: as one line, or by its kind and options.
type SetFault struct {
	// such as reject-register:code=UNAVAILABLE,times=2
	Spec    *string        `json:"spec,omitempty"`
	Kind    *string        `json:"kind,omitempty"`
	Options map[string]any `json:"options,omitempty"`
}

// Terminated: A container that has exited.
type Terminated struct {
	ExitCode   int64    `json:"exit_code"`
	Reason     string   `json:"reason"`
	StartedAt  *float64 `json:"started_at,omitempty"`
	FinishedAt *float64 `json:"finished_at,omitempty"`
}

// Waiting: A container that is not running but will be started.
type Waiting struct {
	Reason  string  `json:"reason"`
	Message *string `json:"message,omitempty"`
}
