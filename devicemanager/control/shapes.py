"""What crosses the control API, besides values of the core that have a JSON form of their own.

The OpenAPI document is made from these classes: their docstrings and descriptions are its
texts. ``schema`` names the shape of an answer, as in docs/json.md.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from devicemanager.core.pods import RestartPolicy
from devicemanager.core.runoptions import RunOptions
from devicemanager.core.status import ResourceStatus
from devicemanager.kubelet.inventory import DeviceStatus, PluginStatus
from devicemanager.kubelet.pods.records import Phase

__all__ = [
    "Admission",
    "Advance",
    "Call",
    "CallQuery",
    "Cleared",
    "Clock",
    "ContainerOutcome",
    "DeviceList",
    "Event",
    "EventQuery",
    "EventWait",
    "Fault",
    "FaultList",
    "FaultQuery",
    "Finish",
    "Finished",
    "Node",
    "NodeStatus",
    "PendingCall",
    "PendingCallList",
    "PluginList",
    "Pod",
    "PodContainer",
    "PodDevices",
    "PodList",
    "PodQuery",
    "PodResourcesStatus",
    "Problem",
    "Resource",
    "ResourceList",
    "ResourceQuery",
    "ResourceWait",
    "RpcStatus",
    "Seconds",
    "SetFault",
    "StartQuery",
    "schema",
]

DeviceIds = dict[str, list[str]]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=3600, description="seconds")]


def schema(name: str) -> str:
    """The value of ``schema`` in an answer of this shape."""
    return f"devicemanager.{name}/v1"


class RpcStatus(Struct, kw_only=True, frozen=True):
    """The status with which a plugin answered a call, or that stands for no answer."""

    code: Annotated[str, Meta(description="the code's name, such as NotFound")]
    message: str


class Problem(Struct, kw_only=True, frozen=True):
    """Why a request was not met (RFC 9457)."""

    type: str = "about:blank"
    title: Annotated[str, Meta(description="the HTTP status in words")]
    status: int
    detail: Annotated[str, Meta(description="one line: what, where, what to do")]
    reason: Annotated[str, Meta(description="a fixed word for programs, such as not-found")]
    report: Annotated[
        str | UnsetType, Meta(description="of a wait that failed: what did happen, in lines")
    ] = UNSET
    problems: Annotated[
        list[str] | UnsetType, Meta(description="of invalid objects: a line for each rule broken")
    ] = UNSET
    rpc_status: Annotated[
        RpcStatus | UnsetType, Meta(description="of a call to a plugin that failed")
    ] = UNSET


class Node(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("node")):
    """The node and where its kubelet's files are."""

    name: str
    kubelet_version: str
    serving: Annotated[bool, Meta(description="false while the kubelet is stopped")]
    latest_event: Annotated[int, Meta(description="the number of the latest event; 0 for none")]
    latest_call: Annotated[int, Meta(description="the number of the latest call; 0 for none")]
    dropped_calls: Annotated[int, Meta(description="calls that are not remembered any more")]
    root: str
    plugin_dir: str
    plugin_socket: str
    pod_resources_socket: str
    plugins_registry_dir: str
    checkpoint_path: str
    claims_state_path: str


class NodeStatus(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("node-status")):
    """Devices by resource as the node's status has them: a resource that was removed stays,
    at 0."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


class Resource(Struct, kw_only=True, frozen=True):
    """One resource of a device plugin that the kubelet knows."""

    name: str
    capacity: Annotated[int, Meta(description="devices, healthy or not")]
    allocatable: Annotated[int, Meta(description="healthy devices, in use or not")]


class ResourceList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resources")):
    """Resources, sorted by name."""

    items: list[Resource]


class PluginList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("plugins")):
    """The plugin of each known resource, sorted by resource."""

    items: list[PluginStatus]


class DeviceList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("devices")):
    """Devices, sorted by resource and id."""

    items: list[DeviceStatus]


class PodContainer(Struct, kw_only=True, frozen=True):
    """One container of a pod's spec and what became of it."""

    name: str
    limits: dict[str, int]
    requests: dict[str, int]
    restartable: Annotated[bool, Meta(description="an init container with restartPolicy Always")]
    claims: list[str]
    running: bool
    finished: Annotated[bool, Meta(description="an init container that has ended")]


class Pod(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pod")):
    """A pod that is known and not deleted."""

    uid: str
    name: str
    namespace: str
    phase: Phase
    reason: Annotated[str, Meta(description="why it was rejected; else empty")]
    message: str
    admitted: Annotated[bool, Meta(description="whether it has been admitted once")]
    restart_policy: RestartPolicy
    containers: list[PodContainer]
    init_containers: list[PodContainer]
    resource_claims: Annotated[
        dict[str, str | None], Meta(description="name in the pod to the name of the claim")
    ]


class PodList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pod-list")):
    """Pods, in the order in which they came."""

    items: list[Pod]


class ContainerOutcome(Struct, kw_only=True, frozen=True):
    """One container of an admitted pod: its devices, and its settings as far as they can be
    had."""

    devices: Annotated[DeviceIds, Meta(description="resource to device ids, sorted")]
    claims: Annotated[DeviceIds, Meta(description="claim to devices, as pool/device")]
    numa_nodes: Annotated[
        list[int] | None, Meta(description="to which it was aligned; null for no affinity")
    ]
    settings: RunOptions | None
    settings_error: str | None
    oci: Annotated[
        dict[str, Any] | None,
        Meta(description="part of an OCI configuration, as a runtime of this host would be told"),
    ]
    oci_error: str | None
    start_error: Annotated[
        str | None, Meta(description="why the container did not start; null if it did")
    ]


class Admission(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("admission")):
    """What became of a pod: its containers' devices and settings, or the rejection."""

    pod: Pod
    admitted: bool
    reason: str
    message: str
    containers: Annotated[
        dict[str, ContainerOutcome], Meta(description="by name; empty for a rejection")
    ]
    explanation: Annotated[
        dict[str, Any] | None, Meta(description="policy, steps, holders and text; see docs/json.md")
    ]
    explanation_text: Annotated[str, Meta(description="the same with a drawing, for people")]


class PodDevices(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pod-devices")):
    """What a pod holds."""

    containers: Annotated[
        dict[str, DeviceIds], Meta(description="container to resource to device ids, sorted")
    ]


class PodResourcesStatus(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("resources-status")
):
    """allocatedResourcesStatus by container."""

    containers: dict[str, list[ResourceStatus]]


class Finished(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("finished")):
    """The phase of a pod that has ended by itself."""

    phase: Phase


class Event(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("event")):
    """One thing that happened. Of the kind events-dropped: so many (details.dropped) are
    missing at this place, since the kubelet does not remember them any more."""

    number: Annotated[int, Meta(description="events are numbered from 1")]
    time: Annotated[float, Meta(description="seconds since the epoch, by the kubelet's clock")]
    kind: str
    message: str
    warning: bool
    resource: str | None
    pod: Annotated[str | None, Meta(description="the UID of the pod concerned")]
    details: dict[str, Any]


class Call(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("call")):
    """One RPC between the kubelet and a plugin, or one message of a ListAndWatch stream. Of the
    rpc "dropped": so many (response.dropped) are missing at this place, since the kubelet does
    not remember them any more."""

    number: Annotated[int, Meta(description="calls are numbered from 1, as they end")]
    time: Annotated[float, Meta(description="when it began, in seconds since the epoch")]
    resource: str | None
    plugin: Annotated[str, Meta(description="the plugin's endpoint")]
    direction: Annotated[str, Meta(description="to-plugin or to-kubelet")]
    rpc: Annotated[str, Meta(description="the method, such as Allocate")]
    stream_message: Annotated[
        int | None, Meta(description="which list of its stream it is, from 1")
    ]
    request: Annotated[dict[str, Any], Meta(description="with the .proto file's names")]
    response: Annotated[dict[str, Any] | None, Meta(description="null if there was none")]
    code: Annotated[str, Meta(description="OK, or the status code's name")]
    message: str
    duration: Annotated[float, Meta(description="seconds")]
    after_event: Annotated[int, Meta(description="the latest event when it ended")]
    fault: Annotated[str, Meta(description="the faults that had a part in it, if any")]
    request_bytes: Annotated[bytes | None, Meta(description="null unless asked for")]
    response_bytes: bytes | None


class PendingCall(Struct, kw_only=True, frozen=True):
    """A call that is not answered yet, or a list stream that is open."""

    time: Annotated[float, Meta(description="when it began, in seconds since the epoch")]
    resource: str | None
    plugin: str
    direction: str
    rpc: str
    messages: Annotated[int, Meta(description="of the stream so far")]


class PendingCallList(
    Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("pending-calls")
):
    """Calls in progress, the oldest first."""

    items: list[PendingCall]


class Fault(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("fault")):
    """A fault that was set; see docs/faults.md for the kinds and their options."""

    id: Annotated[int, Meta(description="faults are numbered from 1")]
    kind: str
    spec: Annotated[str, Meta(description="the line that sets it")]
    options: Annotated[dict[str, Any], Meta(description="those that are not at their default")]
    seen: Annotated[int, Meta(description="how many occasions have been the fault's")]
    fired: Annotated[int, Meta(description="at how many of them it fired")]
    holding: Annotated[int, Meta(description="how many calls or streams it holds up now")]
    spent: Annotated[bool, Meta(description="whether it has fired as often as it may")]


class FaultList(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("faults")):
    """The faults that were set and not cleared, in the order in which they were set."""

    seed: Annotated[int, Meta(description="decides where a fault has a probability")]
    items: list[Fault]


class Cleared(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("cleared")):
    """How many faults were taken back."""

    count: int


class Clock(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("clock")):
    """The kubelet's clock."""

    manual: Annotated[bool, Meta(description="whether it stands still until it is advanced")]
    monotonic: Annotated[float, Meta(description="seconds; never goes back")]
    time: Annotated[float, Meta(description="seconds since the epoch")]


# -- what is asked ---------------------------------------------------------------------


class Finish(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How a pod's app containers end."""

    exit_codes: Annotated[
        int | dict[str, int], Meta(description="one for all, or by container (0 where not given)")
    ] = 0


class ResourceWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Until so many devices of a resource are allocatable."""

    resource: str
    count: Annotated[Count | None, Meta(description="null: any")] = None
    timeout: Seconds = 10.0


class EventWait(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Until the next event that matches."""

    kinds: Annotated[list[str], Meta(description="none given: of any kind")] = []
    resource: str | None = None
    pod: Annotated[str | None, Meta(description="of the pod with this UID")] = None
    text: Annotated[str | None, Meta(description="its message contains this")] = None
    after: Annotated[
        Count | None, Meta(description="later than the event of this number; null: than now")
    ] = None
    timeout: Seconds = 10.0


class Advance(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How far the clock is turned."""

    seconds: Annotated[float, Meta(ge=0, le=1e9)]


class SetFault(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A fault to set: as one line, or by its kind and options."""

    spec: Annotated[str, Meta(description="such as reject-register:code=UNAVAILABLE,times=2")] = ""
    kind: str = ""
    options: dict[str, Any] = {}


class FaultQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[str | None, Meta(description="of this kind only")] = None


class StartQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    start: Annotated[bool, Meta(description="start the containers, too")] = True


class PodQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    uid: Annotated[list[str], Meta(description="UIDs; may be repeated", min_length=1)]


class ResourceQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    resource: Annotated[str | None, Meta(description="of this resource only")] = None


class EventQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    since: Annotated[
        Count, Meta(description="events later than the one of this number; 0: all remembered")
    ] = 0
    follow: Annotated[bool, Meta(description="go on with those that come")] = False
    kind: Annotated[list[str], Meta(description="of these kinds only; may be repeated")] = []


class CallQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    since: Annotated[
        Count, Meta(description="calls later than the one of this number; 0: all remembered")
    ] = 0
    follow: Annotated[bool, Meta(description="go on with those that come")] = False
    resource: Annotated[str | None, Meta(description="of this resource only")] = None
    rpc: Annotated[str | None, Meta(description="of this method only, such as Allocate")] = None
    plugin: Annotated[str | None, Meta(description="of this endpoint only")] = None
    code: Annotated[str | None, Meta(description="with this status code only")] = None
    device_id: Annotated[
        list[str], Meta(description="that ask for exactly these; may be repeated")
    ] = []
    bytes: Annotated[bool, Meta(description="with the messages as they were, in base64")] = False
