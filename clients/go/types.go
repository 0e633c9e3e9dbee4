// Code generated from docs/openapi.json by tools/go_client.py. DO NOT EDIT.

package mockkubelet

// Admission: The result of an admission: devices and settings of the containers, or the rejection.
type Admission struct {
	Schema   string  `json:"schema"`
	Pod      PodInfo `json:"pod"`
	Admitted bool    `json:"admitted"`
	// true if the pod was rejected because the search for its structured claims reached its limits: the claims may fit
	Undecided *bool  `json:"undecided,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	// containers by name; empty for a rejected pod
	Containers map[string]ContainerOutcome `json:"containers"`
	// policy, steps, holders and text; see docs/json.md
	Explanation map[string]any `json:"explanation"`
	// the explanation as text, with a drawing
	ExplanationText string `json:"explanation_text"`
}

// Advance: The time by which to advance the clock.
type Advance struct {
	// time, in seconds
	Seconds float64 `json:"seconds"`
}

// Allocate: An Allocate call. Set `ids` for one container, or `containers` for several.
type Allocate struct {
	Resource string `json:"resource"`
	// device IDs of one container
	Ids []string `json:"ids,omitempty"`
	// device IDs, one list per container
	Containers [][]string `json:"containers,omitempty"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Allocated: Response to an Allocate call: the settings in each ContainerAllocateResponse.
type Allocated struct {
	Schema     string              `json:"schema"`
	Containers []ContainerSettings `json:"containers"`
}

// Call: An RPC between the kubelet and a plugin, or one message of a ListAndWatch stream. A call with
// rpc "dropped" stands for calls that are no longer stored; response.dropped is their number.
type Call struct {
	Schema string `json:"schema"`
	// calls are numbered from 1, in the order they ended
	Number int64 `json:"number"`
	// start of the call, in seconds since the epoch
	Time     float64 `json:"time"`
	Resource *string `json:"resource"`
	// the plugin's endpoint
	Plugin string `json:"plugin"`
	// to-plugin or to-kubelet
	Direction string `json:"direction"`
	// the method, such as Allocate
	RPC string `json:"rpc"`
	// number of the response in its stream, from 1
	StreamMessage *int64 `json:"stream_message"`
	// the message with the field names of the .proto file
	Request map[string]any `json:"request"`
	// null if there was no response
	Response map[string]any `json:"response"`
	// OK, or the name of the status code
	Code    string `json:"code"`
	Message string `json:"message"`
	// seconds
	Duration float64 `json:"duration"`
	// number of the latest event when the call ended
	AfterEvent int64 `json:"after_event"`
	// injected faults that affected the call; empty for none
	Fault string `json:"fault"`
	// encoded message, if requested; else null
	RequestBytes  *string `json:"request_bytes"`
	ResponseBytes *string `json:"response_bytes"`
}

// CallWait: A wait for the end of the next call that matches all criteria.
type CallWait struct {
	// restrict to this resource
	Resource *string `json:"resource,omitempty"`
	// restrict to this method, such as Allocate
	RPC *string `json:"rpc,omitempty"`
	// restrict to the plugin with this endpoint
	Plugin *string `json:"plugin,omitempty"`
	// only calls with exactly these devices in the request
	DeviceIds []string `json:"device_ids,omitempty"`
	// only if the message has at least these fields
	Request map[string]any `json:"request,omitempty"`
	// only if the message has at least these fields
	Response map[string]any `json:"response,omitempty"`
	// restrict to this status code, such as OK
	Code *string `json:"code,omitempty"`
	// restrict to calls after this mark (latest_event and latest_call of the node); by default only new calls
	Since *Mark `json:"since,omitempty"`
	// add the encoded messages, as base64
	Bytes *bool `json:"bytes,omitempty"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// ClaimDevice: An allocated device of a claim.
type ClaimDevice struct {
	Driver  string  `json:"driver"`
	Pool    string  `json:"pool"`
	Device  string  `json:"device"`
	ShareID *string `json:"share_id"`
	// Names of the claim's requests that the device is for. An empty tuple stands for all requests.
	Requests []string `json:"requests"`
	// True if the driver has prepared the device.
	Prepared bool `json:"prepared"`
	// The CDI devices that the driver returned for the device.
	CDIDevices []string `json:"cdi_devices"`
}

// ClaimExplanation: Explanation of one claim of a pod: the claim's state, and what is missing.
type ClaimExplanation struct {
	// Name of the entry in the pod's `spec.resourceClaims`; empty for the claim of the pod's extended resources.
	Entry string `json:"entry"`
	// Name of the ResourceClaim; null if the name is not known.
	Claim *string    `json:"claim"`
	State ClaimState `json:"state"`
	// One line for users: what is missing, and the fix.
	Text string `json:"text"`
}

// ClaimResult: Result that `prepare_claims` or `unprepare_claims` of `MockKubelet` returns for one
// claim.
type ClaimResult struct {
	// The driver's error for this claim; empty if the call succeeded.
	Error string `json:"error"`
	// The prepared devices; empty for NodeUnprepareResources.
	Devices []ClaimDevice `json:"devices"`
}

// ClaimResults: The results of a call to a DRA driver, by the UID of the claim.
type ClaimResults struct {
	Schema string                 `json:"schema"`
	Claims map[string]ClaimResult `json:"claims"`
}

// ClaimState: State of a ResourceClaim, such as prepared. If a pod waits for the claim, the state names the
// first thing that is missing.
type ClaimState string

// The values of ClaimState.
const (
	ClaimStateNoDriver      ClaimState = "no-driver"
	ClaimStateNotAllocated  ClaimState = "not-allocated"
	ClaimStateNotConnected  ClaimState = "not-connected"
	ClaimStateNotCreated    ClaimState = "not-created"
	ClaimStateNotFound      ClaimState = "not-found"
	ClaimStateNotNeeded     ClaimState = "not-needed"
	ClaimStateNotOwned      ClaimState = "not-owned"
	ClaimStateNotPrepared   ClaimState = "not-prepared"
	ClaimStateNotReserved   ClaimState = "not-reserved"
	ClaimStateNotUsed       ClaimState = "not-used"
	ClaimStateOtherUID      ClaimState = "other-uid"
	ClaimStatePrepareFailed ClaimState = "prepare-failed"
	ClaimStatePrepared      ClaimState = "prepared"
	ClaimStateUnpreparing   ClaimState = "unpreparing"
)

// ClaimsExplanation: Explanation why a pod has no sandbox, or why a pod cannot terminate.
type ClaimsExplanation struct {
	// Namespace and name of the pod, as `namespace/name`.
	Pod   string `json:"pod"`
	Phase string `json:"phase"`
	// True if the pod's sandbox was created. This happens only after the claims were prepared.
	Sandbox bool `json:"sandbox"`
	// True if the pod terminates as soon as its claims are unprepared.
	Ending bool `json:"ending"`
	// Error of the last attempt to prepare or unprepare the claims; empty if the attempt did not fail.
	Error string `json:"error"`
	// Seconds until the kubelet retries; null if it does not retry.
	RetryIn *float64           `json:"retry_in"`
	Claims  []ClaimExplanation `json:"claims"`
}

// Cleared: The number of faults that were cleared.
type Cleared struct {
	Schema string `json:"schema"`
	Count  int64  `json:"count"`
}

// Clock: The time of the kubelet's clock.
type Clock struct {
	Schema string `json:"schema"`
	// true if time passes only when the clock is advanced
	Manual bool `json:"manual"`
	// seconds; never goes back
	Monotonic float64 `json:"monotonic"`
	// seconds since the epoch
	Time float64 `json:"time"`
}

// Conflict: A setting of a container for which two different values were returned.
//
// `kind` is the kind of setting: `env`, `mount`, `mount access`, `device`,
// `device permissions`, `annotation` or `network interface`. `kept_value` is used, and
// `dropped_value` is not. `kept_by` and `dropped_by` name the sources of these two values: a
// resource, or another source such as a CDI device. Both values can have the same source.
type Conflict struct {
	Kind         string `json:"kind"`
	Key          string `json:"key"`
	KeptBy       string `json:"kept_by"`
	KeptValue    string `json:"kept_value"`
	DroppedBy    string `json:"dropped_by"`
	DroppedValue string `json:"dropped_value"`
}

// ContainerInfo: A container of a pod: its requests, its state and its devices.
type ContainerInfo struct {
	// Name of the container, unique within the pod.
	Name string `json:"name"`
	// `app`, `init` (an init container that runs to completion), or `sidecar` (an init container with restartPolicy Always).
	Kind ContainerKind `json:"kind"`
	// Resource limits by resource: number of devices, milli-CPUs or bytes.
	Limits map[string]int64 `json:"limits"`
	// Resource requests by resource, in the same units as `limits`.
	Requests map[string]int64 `json:"requests"`
	// True for an init container with restartPolicy Always.
	Restartable bool `json:"restartable"`
	// Names of the pod's resource claims that the container uses.
	Claims []string `json:"claims"`
	// True if the container's state is `running`.
	Running bool `json:"running"`
	// True for an init container that has run to completion.
	Finished bool `json:"finished"`
	// State of the container; `unknown` if the pod was read from PodResources, which does not report states.
	State string `json:"state"`
	// Reason why the container is waiting or has terminated, such as OOMKilled.
	Reason string `json:"reason"`
	// Details about the reason, for people; can be empty.
	Message string `json:"message"`
	// Exit code of a terminated container; null in other states.
	ExitCode *int64 `json:"exit_code"`
	// How often the container was restarted.
	RestartCount int64 `json:"restart_count"`
	// Sorted IDs of the allocated devices, by resource.
	Devices map[string][]string `json:"devices"`
	// Devices allocated to the container's resource claims, as pool/device, by claim.
	ClaimDevices map[string][]string `json:"claim_devices"`
	// CDI devices that a started container got for its ResourceClaims, from DRA drivers.
	CDIDevices []string `json:"cdi_devices"`
}

// ContainerKind: The role of a container in its pod.
type ContainerKind string

// The values of ContainerKind.
const (
	ContainerKindApp     ContainerKind = "app"
	ContainerKindInit    ContainerKind = "init"
	ContainerKindSidecar ContainerKind = "sidecar"
)

// ContainerOutcome: A container of an admitted pod: its devices, and its settings or why they are invalid.
type ContainerOutcome struct {
	// sorted device IDs by resource
	Devices map[string][]string `json:"devices"`
	// devices by resource claim, as pool/device
	Claims map[string][]string `json:"claims"`
	// NUMA nodes to which it is aligned; null for no affinity
	NUMANodes     []int64     `json:"numa_nodes"`
	Settings      *RunOptions `json:"settings"`
	SettingsError *string     `json:"settings_error"`
	// part of the OCI configuration for a container runtime of this host
	OCI      map[string]any `json:"oci"`
	OCIError *string        `json:"oci_error"`
	// why the container did not start; null if it started
	StartError *string `json:"start_error"`
}

// ContainerSettings: Container settings of one resource, from a plugin's ContainerAllocateResponse.
//
// The items are in the plugin's order. `filesystem_devices`, `network_interfaces` and
// `pci_devices` come from typed devices, an extension of the API by this project.
type ContainerSettings struct {
	Envs              map[string]string  `json:"envs"`
	Mounts            []Mount            `json:"mounts"`
	Devices           []DeviceSpec       `json:"devices"`
	Annotations       map[string]string  `json:"annotations"`
	CDIDevices        []string           `json:"cdi_devices"`
	NetworkInterfaces []NetworkInterface `json:"network_interfaces"`
	PCIDevices        []PciDevice        `json:"pci_devices"`
	FilesystemDevices []DeviceSpec       `json:"filesystem_devices"`
}

// ContainerState: The state of a container: exactly one field is not null. Times are seconds since the epoch;
// they are null if an earlier kubelet instance started the container.
type ContainerState struct {
	Waiting    *Waiting    `json:"waiting,omitempty"`
	Running    *Running    `json:"running,omitempty"`
	Terminated *Terminated `json:"terminated,omitempty"`
}

// ContainerStatus: The status of a container, as in the Kubernetes API.
type ContainerStatus struct {
	Schema string         `json:"schema"`
	Name   string         `json:"name"`
	State  ContainerState `json:"state"`
	// how the container terminated the last time
	LastTermination *Terminated `json:"last_termination"`
	RestartCount    int64       `json:"restart_count"`
}

// ContainerStatusList: The statuses of a pod's containers, init containers first.
type ContainerStatusList struct {
	Schema string            `json:"schema"`
	Items  []ContainerStatus `json:"items"`
}

// Delete: The grace period with which a pod is deleted.
type Delete struct {
	// seconds, at least 1; null: the pod's terminationGracePeriodSeconds
	GracePeriod *float64 `json:"grace_period,omitempty"`
}

// DeviceList: Devices, sorted by resource and ID.
type DeviceList struct {
	Schema string         `json:"schema"`
	Items  []DeviceStatus `json:"items"`
}

// DeviceSpec: A device node in the container.
//
// `permissions` is the plugin's text with the letters r (read), w (write) and m (mknod).
type DeviceSpec struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	Permissions   string `json:"permissions"`
}

// DeviceStatus: A device with its health, and the container it is allocated to, if any.
type DeviceStatus struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Health of the device. After the plugin has disconnected, the health is `Unhealthy`. It is `Unknown` if the kubelet has removed the resource, or if the plugin does not advertise the device any more.
	Health Health `json:"health"`
	// The device's NUMA nodes; None for a device without topology.
	NUMANodes []int64 `json:"numa_nodes"`
	// UID of the pod that the device is allocated to; None if the device is free.
	Pod *string `json:"pod"`
	// Name of the container that the device is allocated to; None if the device is free.
	Container *string `json:"container"`
}

// DraObjectList: Objects of resource.k8s.io/v1, as in the Kubernetes API.
type DraObjectList struct {
	Schema string           `json:"schema"`
	Items  []map[string]any `json:"items"`
}

// DraStatus: The registered drivers, the claims of the node, and the ResourceSlices.
type DraStatus struct {
	// The registered driver instances, sorted by driver, the oldest instance first.
	Drivers []DriverInstance `json:"drivers"`
	// The claims of the node, sorted by namespace and name.
	Claims []ResourceClaimInfo `json:"claims"`
	// The ResourceSlices in the kubelet's memory, sorted by driver, pool and name. Slices in an API server are not included.
	Slices []ResourceSliceInfo `json:"slices"`
	// The skipped calls to drivers, sorted by RPC and driver.
	Skipped []SkippedCalls `json:"skipped"`
}

// DriverCall: A call to a DRA driver for claims, without a pod.
type DriverCall struct {
	// name of the driver, such as gpu.example.com
	Driver string `json:"driver"`
	// NAMESPACE/NAME of each ResourceClaim
	Claims []string `json:"claims"`
	// socket of an instance; by default the one that the kubelet calls
	Endpoint *string `json:"endpoint,omitempty"`
}

// DriverInstance: A registered instance of a DRA driver.
type DriverInstance struct {
	Driver string `json:"driver"`
	// Path of the instance's service socket.
	Endpoint string `json:"endpoint"`
	// The version of the service that the kubelet calls, such as `v1`.
	Service string `json:"service"`
	// The version of the health service that the kubelet calls; null for no health service.
	HealthService *string `json:"health_service"`
	Connected     bool    `json:"connected"`
}

// DriverList: Registered instances of DRA drivers, sorted by driver, the oldest instance first.
type DriverList struct {
	Schema string           `json:"schema"`
	Items  []DriverInstance `json:"items"`
}

// Event: An event of the kubelet. An event of kind events-dropped stands for events that are no longer
// stored; details.dropped is their number.
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
	// UID of the pod concerned
	Pod     *string        `json:"pod"`
	Details map[string]any `json:"details"`
}

// EventWait: A wait for the next event that matches all criteria.
type EventWait struct {
	// kinds of events; by default any kind
	Kinds []string `json:"kinds,omitempty"`
	// restrict to this resource
	Resource *string `json:"resource,omitempty"`
	// restrict to the pod with this UID
	Pod *string `json:"pod,omitempty"`
	// only events with this text in the message
	Text *string `json:"text,omitempty"`
	// only events with a larger number; by default only new events
	After *int64 `json:"after,omitempty"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// ExitContainer: The exit code and the reason with which a container terminates.
type ExitContainer struct {
	// exit code of the container
	ExitCode *int64 `json:"exit_code,omitempty"`
	// such as OOMKilled; by default Completed for exit code 0, else Error
	Reason *string `json:"reason,omitempty"`
}

// Fault: An injected fault. docs/faults.md has the kinds and their options.
type Fault struct {
	Schema string `json:"schema"`
	// faults are numbered from 1
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
	// the line that sets this fault
	Spec string `json:"spec"`
	// options with a value other than the default
	Options map[string]any `json:"options"`
	// how often its injection point was reached
	Seen int64 `json:"seen"`
	// how often it fired
	Fired int64 `json:"fired"`
	// number of calls and streams that it currently delays
	Holding int64 `json:"holding"`
	// true if it can no longer fire
	Spent bool `json:"spent"`
}

// FaultList: The faults that were set and not cleared, in the order of their IDs.
type FaultList struct {
	Schema string `json:"schema"`
	// seed for faults with a probability
	Seed  int64   `json:"seed"`
	Items []Fault `json:"items"`
}

// Finish: The exit codes with which the app containers of a pod terminate.
type Finish struct {
	// one exit code for all containers, or exit codes by container name (default: 0)
	ExitCodes any `json:"exit_codes,omitempty"`
}

// Finished: The phase of a pod whose containers have terminated.
type Finished struct {
	Schema string `json:"schema"`
	Phase  Phase  `json:"phase"`
}

// GetOptions: A GetDevicePluginOptions call.
type GetOptions struct {
	Resource string `json:"resource"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// GetPreferred: A GetPreferredAllocation call for one container.
type GetPreferred struct {
	Resource string `json:"resource"`
	// device IDs to choose from
	Available []string `json:"available"`
	// device IDs that must be included
	MustInclude []string `json:"must_include,omitempty"`
	// number of devices to prefer
	Size int64 `json:"size"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Health: Health of a device (`ResourceHealthStatus` in the Kubernetes API).
type Health string

// The values of Health.
const (
	HealthHealthy   Health = "Healthy"
	HealthUnhealthy Health = "Unhealthy"
	HealthUnknown   Health = "Unknown"
)

// Mark: A moment in the history of a kubelet; waits and searches accept it as `since`.
type Mark struct {
	Event int64 `json:"event"`
	Call  int64 `json:"call"`
}

// Mount: A host directory or file that is mounted into the container.
type Mount struct {
	ContainerPath string `json:"container_path"`
	HostPath      string `json:"host_path"`
	ReadOnly      bool   `json:"read_only"`
}

// NetworkInterface: A network interface that is moved into the container's network namespace.
//
// `net_ns` is the path of its present namespace; empty for the host's namespace.
type NetworkInterface struct {
	HostName      string `json:"host_name"`
	ContainerName string `json:"container_name"`
	NetNs         string `json:"net_ns"`
}

// Node: The node's name, the kubelet's version and the paths of the kubelet's files.
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
	// number of calls no longer stored
	DroppedCalls       int64  `json:"dropped_calls"`
	Root               string `json:"root"`
	PluginDir          string `json:"plugin_dir"`
	PluginSocket       string `json:"plugin_socket"`
	PodResourcesSocket string `json:"pod_resources_socket"`
	// served from Kubernetes 1.37 on
	PodsApiSocket      string `json:"pods_api_socket"`
	PluginsRegistryDir string `json:"plugins_registry_dir"`
	CheckpointPath     string `json:"checkpoint_path"`
	ClaimsStatePath    string `json:"claims_state_path"`
}

// NodeStatus: Capacity and allocatable of the node, as numbers of devices by resource. A removed resource
// remains with 0 devices.
type NodeStatus struct {
	Schema      string           `json:"schema"`
	Capacity    map[string]int64 `json:"capacity"`
	Allocatable map[string]int64 `json:"allocatable"`
}

// PciDevice: A PCI device, identified by vendor ID and product ID of four hexadecimal digits each.
//
// `addresses`, such as `0000:3b:00.0`, is empty until the IDs are looked up on a host.
type PciDevice struct {
	VendorID  string   `json:"vendor_id"`
	ProductID string   `json:"product_id"`
	Addresses []string `json:"addresses"`
}

// PendingCall: A call without a response, or an open ListAndWatch stream.
type PendingCall struct {
	// start of the call, in seconds since the epoch
	Time      float64 `json:"time"`
	Resource  *string `json:"resource"`
	Plugin    string  `json:"plugin"`
	Direction string  `json:"direction"`
	RPC       string  `json:"rpc"`
	// number of messages in the stream so far
	Messages int64 `json:"messages"`
}

// PendingCallList: Calls in progress, sorted by start time.
type PendingCallList struct {
	Schema string        `json:"schema"`
	Items  []PendingCall `json:"items"`
}

// Phase: Phase of a pod (`status.phase`).
type Phase string

// The values of Phase.
const (
	PhaseFailed    Phase = "Failed"
	PhasePending   Phase = "Pending"
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseUnknown   Phase = "Unknown"
)

// PluginList: The plugin of each known resource, sorted by resource.
type PluginList struct {
	Schema string         `json:"schema"`
	Items  []PluginStatus `json:"items"`
}

// PluginOptions: The options of a plugin, as GetDevicePluginOptions returns them.
type PluginOptions struct {
	PreStartRequired                bool `json:"pre_start_required"`
	GetPreferredAllocationAvailable bool `json:"get_preferred_allocation_available"`
}

// PluginStatus: The plugin that serves a resource, and the numbers of devices of the resource.
type PluginStatus struct {
	Resource string `json:"resource"`
	// File name of the plugin's socket. For a plugin that the plugin watcher found: the path of the socket. For a resource that only the checkpoint names: the resource name.
	Endpoint string `json:"endpoint"`
	// True while the plugin's ListAndWatch stream is open.
	Connected                       bool  `json:"connected"`
	PreStartRequired                bool  `json:"pre_start_required"`
	GetPreferredAllocationAvailable bool  `json:"get_preferred_allocation_available"`
	Capacity                        int64 `json:"capacity"`
	Allocatable                     int64 `json:"allocatable"`
}

// PodDevices: The devices allocated to a pod.
type PodDevices struct {
	Schema string `json:"schema"`
	// sorted device IDs by resource, by container
	Containers map[string]map[string][]string `json:"containers"`
}

// PodInfo: Snapshot of a pod that the kubelet knows, with its containers and their devices.
type PodInfo struct {
	// Name and version of the JSON format of this object.
	Schema string `json:"schema"`
	// `metadata.uid`; or `namespace/name` if the pod was read from PodResources, which does not report UIDs.
	UID string `json:"uid"`
	// `metadata.name`.
	Name string `json:"name"`
	// `metadata.namespace`.
	Namespace string `json:"namespace"`
	// Phase of the pod; `Unknown` if the pod was read from PodResources, which does not report phases.
	Phase Phase `json:"phase"`
	// Reason why the pod was rejected or has failed; otherwise empty.
	Reason string `json:"reason"`
	// Details about the reason, as in `status.message`.
	Message string `json:"message"`
	// True if the pod was admitted, even if it has ended since.
	Admitted bool `json:"admitted"`
	// True from the request to delete the pod until its containers have terminated.
	Deleting bool `json:"deleting"`
	// When this kubelet first saw the pod, in seconds since the epoch; null if an earlier kubelet saw it first.
	StartTime *float64 `json:"start_time"`
	// `spec.restartPolicy`.
	RestartPolicy RestartPolicy `json:"restart_policy"`
	// App containers, in the order of the manifest.
	Containers []ContainerInfo `json:"containers"`
	// Init containers and sidecars, in the order of the manifest.
	InitContainers []ContainerInfo `json:"init_containers"`
	// Names of the ResourceClaim objects, by the names that the pod uses for them; null for a claim that is created from a template.
	ResourceClaims map[string]*string `json:"resource_claims"`
	// IDs of the allocated devices by container and resource; containers without devices are omitted.
	Devices map[string]map[string][]string `json:"devices"`
}

// PodList: Pods, in the order of their admission.
type PodList struct {
	Schema string    `json:"schema"`
	Items  []PodInfo `json:"items"`
}

// PodResourcesStatus: The field allocatedResourcesStatus of each container of a pod.
type PodResourcesStatus struct {
	Schema     string                      `json:"schema"`
	Containers map[string][]ResourceStatus `json:"containers"`
}

// PreStart: A PreStartContainer call for the devices of one container.
type PreStart struct {
	Resource string   `json:"resource"`
	Ids      []string `json:"ids"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// Preferred: Response to a GetPreferredAllocation call: the device IDs in each
// ContainerPreferredAllocationResponse, in the plugin's order.
type Preferred struct {
	Schema     string     `json:"schema"`
	Containers [][]string `json:"containers"`
}

// Problem: Why a request failed, in the format of RFC 9457.
type Problem struct {
	Type *string `json:"type,omitempty"`
	// the HTTP status in words
	Title  string `json:"title"`
	Status int64  `json:"status"`
	// one line for people: the problem, where it is, and what to do
	Detail string `json:"detail"`
	// a fixed word for programs, such as not-found
	Reason string `json:"reason"`
	// for a wait that timed out: the events so far, one per line
	Report *string `json:"report,omitempty"`
	// for invalid objects: one line per broken rule
	Problems []string `json:"problems,omitempty"`
	// for a search that reached its limits: what was not examined
	Unexamined []string `json:"unexamined,omitempty"`
	// status of a failed call to a plugin
	RPCStatus RpcStatus `json:"rpc_status,omitempty"`
}

// Resource: A resource that the kubelet knows, with its device counts.
type Resource struct {
	Name string `json:"name"`
	// number of devices, healthy or not
	Capacity int64 `json:"capacity"`
	// number of healthy devices, allocated or not
	Allocatable int64 `json:"allocatable"`
}

// ResourceClaimInfo: Description of a ResourceClaim of the node: its pods, its devices, and what is missing to
// prepare it.
//
// The control API, `devicemanager ctl`, the terminal views and the live web page show this
// description.
type ResourceClaimInfo struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID of the ResourceClaim; empty if the UID is not known.
	UID   string     `json:"uid"`
	State ClaimState `json:"state"`
	// One line for users: what is missing, and the fix.
	Text string `json:"text"`
	// Error of the last attempt to prepare or unprepare the claim; empty if the attempt did not fail.
	Error string `json:"error"`
	// The UIDs of the node's pods that use the claim, sorted.
	Pods []string `json:"pods"`
	// True if the claim is in the kubelet's state because a pod uses or used it.
	Held bool `json:"held"`
	// True if all drivers have prepared the claim since the kubelet started. A restart sets this to False, because the kubelet does not store the value. If the claim's pods still run, `state` stays `prepared`.
	Prepared    bool `json:"prepared"`
	Unpreparing bool `json:"unpreparing"`
	// The drivers of the claim's devices, sorted.
	Drivers []string `json:"drivers"`
	// The claim's allocated devices; empty if the claim is not allocated.
	Devices []ClaimDevice `json:"devices"`
}

// ResourceClaimList: ResourceClaims of the node, sorted by namespace and name.
type ResourceClaimList struct {
	Schema string              `json:"schema"`
	Items  []ResourceClaimInfo `json:"items"`
}

// ResourceHealth: The health of one allocated device.
type ResourceHealth struct {
	ResourceID string `json:"resource_id"`
	Health     Health `json:"health"`
	// Message of the DRA driver about the health; None for devices of plugins.
	Message *string `json:"message"`
}

// ResourceList: The resources that the kubelet knows, sorted by name.
type ResourceList struct {
	Schema string     `json:"schema"`
	Items  []Resource `json:"items"`
}

// ResourceSliceInfo: A ResourceSlice: some devices of a driver's pool.
type ResourceSliceInfo struct {
	Name       string `json:"name"`
	Driver     string `json:"driver"`
	Pool       string `json:"pool"`
	Generation int64  `json:"generation"`
	// The nodes that can use the slice's devices, as `slice_nodes` returns them: for example a node's name, or `all`.
	Nodes string `json:"nodes"`
	// Names of the slice's devices.
	Devices []string `json:"devices"`
	// Names of the slice's counter sets.
	CounterSets []string `json:"counter_sets"`
}

// ResourceSliceList: ResourceSlices in the kubelet's memory, sorted by driver, pool and name.
type ResourceSliceList struct {
	Schema string              `json:"schema"`
	Items  []ResourceSliceInfo `json:"items"`
}

// ResourceStatus: The health of all devices of one resource in a container, sorted by ID.
type ResourceStatus struct {
	Name      string           `json:"name"`
	Resources []ResourceHealth `json:"resources"`
}

// ResourceWait: A wait for allocatable devices of a resource.
type ResourceWait struct {
	// such as vendor.com/gpu
	Resource string `json:"resource"`
	// exact number of devices; by default at least one
	Count *int64 `json:"count,omitempty"`
	// time to wait, at most one hour, in seconds
	Timeout *float64 `json:"timeout,omitempty"`
}

// RestartPolicy: Restart policy of a pod: which containers the kubelet restarts (`spec.restartPolicy`).
type RestartPolicy string

// The values of RestartPolicy.
const (
	RestartPolicyAlways    RestartPolicy = "Always"
	RestartPolicyNever     RestartPolicy = "Never"
	RestartPolicyOnfailure RestartPolicy = "OnFailure"
)

// RpcStatus: The gRPC status of a call: the plugin's status, or the kubelet's if the plugin did not
// respond.
type RpcStatus struct {
	// the name of the code, such as NotFound
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RunOptions: Merged settings of all resources of a container (`DeviceRunContainerOptions`, v1.32).
//
// The settings of one resource keep the plugin's order, because a runtime applies mounts,
// devices and CDI names in that order. Resources, environment variables and annotations are
// sorted by name; their order in the kubelet is random. `devices` also has the
// `filesystem_devices` of `ContainerSettings`.
type RunOptions struct {
	Envs              map[string]string  `json:"envs"`
	Mounts            []Mount            `json:"mounts"`
	Devices           []DeviceSpec       `json:"devices"`
	Annotations       map[string]string  `json:"annotations"`
	CDIDevices        []string           `json:"cdi_devices"`
	NetworkInterfaces []NetworkInterface `json:"network_interfaces"`
	PCIDevices        []PciDevice        `json:"pci_devices"`
	Conflicts         []Conflict         `json:"conflicts"`
}

// Running: State of a running container.
type Running struct {
	// Seconds since the epoch; None if an earlier kubelet instance started the container.
	StartedAt *float64 `json:"started_at"`
}

// SetFault: A fault to set: either its `spec`, or its `kind` and `options`.
type SetFault struct {
	// such as reject-register:code=UNAVAILABLE,times=2
	Spec    *string        `json:"spec,omitempty"`
	Kind    *string        `json:"kind,omitempty"`
	Options map[string]any `json:"options,omitempty"`
}

// SkippedCalls: Calls to a driver that were not made, because the driver's devices do not need the calls.
type SkippedCalls struct {
	Driver string `json:"driver"`
	RPC    string `json:"rpc"`
	// Number of times, since the kubelet started, that the driver was not called for a claim.
	Count int64 `json:"count"`
}

// Terminated: State of a container that has exited.
type Terminated struct {
	ExitCode int64 `json:"exit_code"`
	// `Completed` for exit code 0, `Error` for any other exit code, or a reason such as `OOMKilled` from the caller of `ContainerStatus.ended`.
	Reason    string   `json:"reason"`
	StartedAt *float64 `json:"started_at"`
	// Seconds since the epoch; None if unknown.
	FinishedAt *float64 `json:"finished_at"`
	Message    string   `json:"message"`
}

// Waiting: State of a container that is not running but will be started.
type Waiting struct {
	// Reason as in the pod's status, such as `ContainerCreating`, `PodInitializing`, `CrashLoopBackOff`, `ErrImagePull` or `CreateContainerConfigError`.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
