"""JSON shapes of the control API, except those in the packages ``core`` and ``kubelet``.

The OpenAPI document, the Go types and the options of ``devicemanager ctl`` are generated from these
classes, their docstrings and the descriptions of their fields. The field ``schema`` of a response
is the name of its shape, as in docs/json.md.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from devicemanager.core.dra.report import (
    ClaimResult,
    DriverInstance,
    ResourceClaimInfo,
    ResourceSliceInfo,
)
from devicemanager.core.podstatus.containers import Running, State, Terminated, Waiting
from devicemanager.core.podstatus.phase import Phase
from devicemanager.core.runoptions import ContainerSettings, RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.events.calls.matching import Mark
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.pods.pod_info import PodInfo

# Unknown fields of a request are rejected, so that a misspelled field does not silently select the
# default. Unknown fields of a response are ignored, so that later versions can add fields. Fields
# that are absent in some responses have the default UNSET; all other fields are always present.

DeviceIds = dict[str, list[str]]
Count = Annotated[int, Meta(ge=0)]
# Limited, so that a wait ends even if its client has disconnected.
Seconds = Annotated[
    float, Meta(ge=0, le=3600, description="time to wait, at most one hour, in seconds")
]
OfResource = Annotated[str | None, Meta(description="restrict to this resource")]
OfPlugin = Annotated[str | None, Meta(description="restrict to the plugin with this endpoint")]
OfRpc = Annotated[str | None, Meta(description="restrict to this method, such as Allocate")]
WithCode = Annotated[str | None, Meta(description="restrict to this status code, such as OK")]


# The tag of a class. msgspec writes it into each response, and rejects a response with another tag.
def schema(name: str) -> str:
    """Return the value of a response's field ``schema``, such as ``devicemanager.node/v1``."""
    return f"devicemanager.{name}/v1"


class RpcStatus(Struct, kw_only=True, frozen=True):
    """The gRPC status of a call: the plugin's status, or the kubelet's if the plugin did not
    respond."""

    code: Annotated[str, Meta(description="the name of the code, such as NotFound")]
    message: str


# RFC 9457 defines the first four fields. `reason` is used instead of its `type`, which needs URLs.
class Problem(Struct, kw_only=True, frozen=True):
    """Why a request failed, in the format of RFC 9457."""

    type: str = "about:blank"
    title: Annotated[str, Meta(description="the HTTP status in words")]
    status: int
    detail: Annotated[
        str, Meta(description="one line for people: the problem, where it is, and what to do")
    ]
    reason: Annotated[str, Meta(description="a fixed word for programs, such as not-found")]
    report: Annotated[
        str | UnsetType,
        Meta(description="for a wait that timed out: the events so far, one per line"),
    ] = UNSET
    problems: Annotated[
        list[str] | UnsetType, Meta(description="for invalid objects: one line per broken rule")
    ] = UNSET
    unexamined: Annotated[
        list[str] | UnsetType,
        Meta(description="for a search that reached its limits: what was not examined"),
    ] = UNSET
    rpc_status: Annotated[
        RpcStatus | UnsetType, Meta(description="status of a failed call to a plugin")
    ] = UNSET


class Node(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("node")):
    """The node's name, the kubelet's version and the paths of the kubelet's files."""

    name: str
    kubelet_version: str
    serving: Annotated[bool, Meta(description="false while the kubelet is stopped")]
    latest_event: Annotated[int, Meta(description="the number of the latest event; 0 for none")]
    latest_call: Annotated[int, Meta(description="the number of the latest call; 0 for none")]
    dropped_calls: Annotated[int, Meta(description="number of calls no longer stored")]
    root: str
    plugin_dir: str
    plugin_socket: str
    pod_resources_socket: str
    pods_api_socket: Annotated[str, Meta(description="served from Kubernetes 1.37 on")]
    plugins_registry_dir: str
    checkpoint_path: str
    claims_state_path: str


class NodeStatus(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("node-status")):
    """Capacity and allocatable of the node, as numbers of devices by resource. A removed resource
    remains with 0 devices."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


class Resource(Struct, kw_only=True, frozen=True):
    """A resource that the kubelet knows, with its device counts."""

    name: str
    capacity: Annotated[int, Meta(description="number of devices, healthy or not")]
    allocatable: Annotated[int, Meta(description="number of healthy devices, allocated or not")]


class ResourceList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resources")):
    """The resources that the kubelet knows, sorted by name."""

    items: list[Resource]


class PluginList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("plugins")):
    """The plugin of each known resource, sorted by resource."""

    items: list[PluginStatus]


class DeviceList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("devices")):
    """Devices, sorted by resource and ID."""

    items: list[DeviceStatus]


class DriverList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("drivers")):
    """Registered instances of DRA drivers, sorted by driver, the oldest instance first."""

    items: list[DriverInstance]


class ResourceClaimList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resource-claims")
):
    """ResourceClaims of the node, sorted by namespace and name."""

    items: list[ResourceClaimInfo]


class ResourceSliceList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resource-slices")
):
    """ResourceSlices in the kubelet's memory, sorted by driver, pool and name."""

    items: list[ResourceSliceInfo]


class DraObjectList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("dra-list")):
    """Objects of resource.k8s.io/v1, as in the Kubernetes API."""

    items: list[dict[str, Any]]


class PodList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pod-list")):
    """Pods, in the order of their admission."""

    items: list[PodInfo]


class ContainerOutcome(Struct, kw_only=True, frozen=True):
    """A container of an admitted pod: its devices, and its settings or why they are invalid."""

    devices: Annotated[DeviceIds, Meta(description="sorted device IDs by resource")]
    claims: Annotated[DeviceIds, Meta(description="devices by resource claim, as pool/device")]
    numa_nodes: Annotated[
        list[int] | None,
        Meta(description="NUMA nodes to which it is aligned; null for no affinity"),
    ]
    settings: RunOptions | None
    settings_error: str | None
    oci: Annotated[
        dict[str, Any] | None,
        Meta(description="part of the OCI configuration for a container runtime of this host"),
    ]
    oci_error: str | None
    start_error: Annotated[
        str | None, Meta(description="why the container did not start; null if it started")
    ]


class Admission(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("admission")):
    """The result of an admission: devices and settings of the containers, or the rejection."""

    pod: PodInfo
    admitted: bool
    undecided: Annotated[
        bool,
        Meta(
            description="true if the pod was rejected because the search for its structured claims "
            "reached its limits: the claims may fit"
        ),
    ] = False
    reason: str
    message: str
    containers: Annotated[
        dict[str, ContainerOutcome],
        Meta(description="containers by name; empty for a rejected pod"),
    ]
    explanation: Annotated[
        dict[str, Any] | None, Meta(description="policy, steps, holders and text; see docs/json.md")
    ]
    explanation_text: Annotated[str, Meta(description="the explanation as text, with a drawing")]


class PodDevices(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pod-devices")):
    """The devices allocated to a pod."""

    containers: Annotated[
        dict[str, DeviceIds], Meta(description="sorted device IDs by resource, by container")
    ]


class PodResourcesStatus(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resources-status")
):
    """The field allocatedResourcesStatus of each container of a pod."""

    containers: dict[str, list[ResourceStatus]]


class Finished(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("finished")):
    """The phase of a pod whose containers have terminated."""

    phase: Phase


class ContainerState(Struct, kw_only=True, frozen=True):
    """The state of a container: exactly one field is not null. Times are seconds since the epoch;
    they are null if an earlier kubelet instance started the container."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None

    def __post_init__(self) -> None:
        # msgspec also calls this when a client decodes a response.
        if len(self.given()) != 1:
            raise ValueError("Expected exactly one of waiting, running and terminated")

    def given(self) -> list[State]:
        """Return the field that is not null, as a list with one element."""
        states = (self.waiting, self.running, self.terminated)
        return [state for state in states if state is not None]


class ContainerStatus(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("container-status")
):
    """The status of a container, as in the Kubernetes API."""

    name: str
    state: ContainerState
    last_termination: Annotated[
        Terminated | None, Meta(description="how the container terminated the last time")
    ]
    restart_count: int


class ContainerStatusList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("container-statuses")
):
    """The statuses of a pod's containers, init containers first."""

    items: list[ContainerStatus]


class Event(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("event")):
    """An event of the kubelet. An event of kind events-dropped stands for events that are no longer
    stored; details.dropped is their number."""

    number: Annotated[int, Meta(description="events are numbered from 1")]
    time: Annotated[float, Meta(description="seconds since the epoch, by the kubelet's clock")]
    kind: str
    message: str
    warning: bool
    resource: str | None
    pod: Annotated[str | None, Meta(description="UID of the pod concerned")]
    details: dict[str, Any]


# The fields of ``call_data``, which also writes the file of `run --calls`, plus the raw messages.
class Call(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("call")):
    """An RPC between the kubelet and a plugin, or one message of a ListAndWatch stream. A call with
    rpc "dropped" stands for calls that are no longer stored; response.dropped is their number."""

    number: Annotated[int, Meta(description="calls are numbered from 1, in the order they ended")]
    time: Annotated[float, Meta(description="start of the call, in seconds since the epoch")]
    resource: str | None
    plugin: Annotated[str, Meta(description="the plugin's endpoint")]
    direction: Annotated[str, Meta(description="to-plugin or to-kubelet")]
    rpc: Annotated[str, Meta(description="the method, such as Allocate")]
    stream_message: Annotated[
        int | None, Meta(description="number of the response in its stream, from 1")
    ]
    request: Annotated[
        dict[str, Any], Meta(description="the message with the field names of the .proto file")
    ]
    response: Annotated[dict[str, Any] | None, Meta(description="null if there was no response")]
    code: Annotated[str, Meta(description="OK, or the name of the status code")]
    message: str
    duration: Annotated[float, Meta(description="seconds")]
    after_event: Annotated[int, Meta(description="number of the latest event when the call ended")]
    fault: Annotated[
        str, Meta(description="injected faults that affected the call; empty for none")
    ]
    request_bytes: Annotated[
        bytes | None, Meta(description="encoded message, if requested; else null")
    ]
    response_bytes: bytes | None


class PendingCall(Struct, kw_only=True, frozen=True):
    """A call without a response, or an open ListAndWatch stream."""

    time: Annotated[float, Meta(description="start of the call, in seconds since the epoch")]
    resource: str | None
    plugin: str
    direction: str
    rpc: str
    messages: Annotated[int, Meta(description="number of messages in the stream so far")]


class PendingCallList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pending-calls")
):
    """Calls in progress, sorted by start time."""

    items: list[PendingCall]


class ClaimResults(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("claim-results")
):
    """The results of a call to a DRA driver, by the UID of the claim."""

    claims: dict[str, ClaimResult]


class Allocated(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("allocated")):
    """Response to an Allocate call: the settings in each ContainerAllocateResponse."""

    containers: list[ContainerSettings]


class Preferred(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("preferred")):
    """Response to a GetPreferredAllocation call: the device IDs in each
    ContainerPreferredAllocationResponse, in the plugin's order."""

    containers: list[list[str]]


class Fault(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("fault")):
    """An injected fault. docs/faults.md has the kinds and their options."""

    id: Annotated[int, Meta(description="faults are numbered from 1")]
    kind: str
    spec: Annotated[str, Meta(description="the line that sets this fault")]
    options: Annotated[
        dict[str, Any], Meta(description="options with a value other than the default")
    ]
    seen: Annotated[int, Meta(description="how often its injection point was reached")]
    fired: Annotated[int, Meta(description="how often it fired")]
    holding: Annotated[
        int, Meta(description="number of calls and streams that it currently delays")
    ]
    spent: Annotated[bool, Meta(description="true if it can no longer fire")]


class FaultList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("faults")):
    """The faults that were set and not cleared, in the order of their IDs."""

    seed: Annotated[int, Meta(description="seed for faults with a probability")]
    items: list[Fault]


class Cleared(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("cleared")):
    """The number of faults that were cleared."""

    count: int


class Clock(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("clock")):
    """The time of the kubelet's clock."""

    manual: Annotated[bool, Meta(description="true if time passes only when the clock is advanced")]
    monotonic: Annotated[float, Meta(description="seconds; never goes back")]
    time: Annotated[float, Meta(description="seconds since the epoch")]


# -- bodies of requests ------------------------------------------------------------------


class Finish(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The exit codes with which the app containers of a pod terminate."""

    exit_codes: Annotated[
        int | dict[str, int],
        Meta(
            description="one exit code for all containers, or exit codes by container name "
            "(default: 0)"
        ),
    ] = 0


class Delete(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The grace period with which a pod is deleted."""

    grace_period: Annotated[
        Annotated[float, Meta(le=1e9)] | None,
        Meta(description="seconds, at least 1; null: the pod's terminationGracePeriodSeconds"),
    ] = None


class ExitContainer(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The exit code and the reason with which a container terminates."""

    exit_code: Annotated[int, Meta(description="exit code of the container")] = 0
    reason: Annotated[
        str, Meta(description="such as OOMKilled; by default Completed for exit code 0, else Error")
    ] = ""


class Allocate(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An Allocate call. Set `ids` for one container, or `containers` for several."""

    resource: str
    ids: Annotated[list[str] | None, Meta(description="device IDs of one container")] = None
    containers: Annotated[
        list[list[str]] | None, Meta(description="device IDs, one list per container")
    ] = None
    timeout: Seconds = 10.0


class GetPreferred(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A GetPreferredAllocation call for one container."""

    resource: str
    available: Annotated[list[str], Meta(description="device IDs to choose from")]
    # msgspec copies the empty list for each instance.
    must_include: Annotated[list[str], Meta(description="device IDs that must be included")] = []
    # Any int32 is accepted, even an invalid size, to test how plugins handle it.
    size: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, description="number of devices to prefer")]
    timeout: Seconds = 10.0


class PreStart(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A PreStartContainer call for the devices of one container."""

    resource: str
    ids: list[str]
    timeout: Seconds = 10.0


class GetOptions(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A GetDevicePluginOptions call."""

    resource: str
    timeout: Seconds = 10.0


class DriverCall(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A call to a DRA driver for claims, without a pod."""

    driver: Annotated[str, Meta(description="name of the driver, such as gpu.example.com")]
    claims: Annotated[list[str], Meta(description="NAMESPACE/NAME of each ResourceClaim")]
    endpoint: Annotated[
        str | None,
        Meta(description="socket of an instance; by default the one that the kubelet calls"),
    ] = None


class ResourceWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A wait for allocatable devices of a resource."""

    resource: Annotated[str, Meta(description="such as vendor.com/gpu")]
    count: Annotated[
        Count | None, Meta(description="exact number of devices; by default at least one")
    ] = None
    timeout: Seconds = 10.0


class EventWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A wait for the next event that matches all criteria."""

    kinds: Annotated[list[str], Meta(description="kinds of events; by default any kind")] = []
    resource: OfResource = None
    pod: Annotated[str | None, Meta(description="restrict to the pod with this UID")] = None
    text: Annotated[str | None, Meta(description="only events with this text in the message")] = (
        None
    )
    after: Annotated[
        Count | None,
        Meta(description="only events with a larger number; by default only new events"),
    ] = None
    timeout: Seconds = 10.0


_Part = Annotated[
    dict[str, Any] | None, Meta(description="only if the message has at least these fields")
]


class CallWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A wait for the end of the next call that matches all criteria."""

    resource: OfResource = None
    rpc: OfRpc = None
    plugin: OfPlugin = None
    device_ids: Annotated[
        list[str] | None, Meta(description="only calls with exactly these devices in the request")
    ] = None
    request: _Part = None
    response: _Part = None
    code: WithCode = None
    since: Annotated[
        Mark | None,
        Meta(
            description="restrict to calls after this mark (latest_event and latest_call of the "
            "node); by default only new calls"
        ),
    ] = None
    bytes: Annotated[bool, Meta(description="add the encoded messages, as base64")] = False
    timeout: Seconds = 10.0


class Advance(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The time by which to advance the clock."""

    seconds: Annotated[float, Meta(ge=0, le=1e9, description="time, in seconds")]


class SetFault(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A fault to set: either its `spec`, or its `kind` and `options`."""

    spec: Annotated[str, Meta(description="such as reject-register:code=UNAVAILABLE,times=2")] = ""
    kind: str = ""
    options: dict[str, Any] = {}
