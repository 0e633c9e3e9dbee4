"""The operations of the control API on one kubelet.

Each function runs on a worker thread, so it can block. Each public method and property of
``MockKubelet`` has an operation, except those that a test lists with a reason.

Structured claims request devices in the API ``devmgmtproto.k8s.io``. They are not ResourceClaims.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from devicemanager.control import convert, shapes
from devicemanager.control.errors import NOT_FOUND, HttpError
from devicemanager.control.operation import (
    DraObjects,
    Manifest,
    Objects,
    OperationTable,
    Stream,
    Wait,
    Workers,
)
from devicemanager.control.shapes import Count, OfPlugin, OfResource, OfRpc, WithCode
from devicemanager.core.dra.report import ClaimsExplanation, DraStatus, ResourceClaimInfo
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import RequestError
from devicemanager.core.runoptions import RunOptions
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import CallFilter
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.fault import Fault
from devicemanager.faults.kinds import KINDS
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.pods.pod_info import PodInfo, pod_info
from devicemanager.kubelet.pods.records import PodRecord

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet
else:
    MockKubelet = object  # clients load this module without loading the kubelet

TABLE: Final = OperationTable(
    "Control API of a mock kubelet",
    """\
Controls a mock kubelet: what `MockKubelet` does in Python, over HTTP on `control.sock` in the
kubelet's directory. Pods are named by UID. Later versions can add fields to responses. Unknown
fields and parameters of requests are rejected.""",
)

_POD: Final = "/v1/pods/{uid}"
_CONTAINER: Final = _POD + "/containers/{container}"

_Since = Annotated[
    Count, Meta(description="only entries with a larger number; 0: all stored entries")
]
_Follow = Annotated[
    bool, Meta(description="continue with new entries until the client disconnects")
]


# -- the node ----------------------------------------------------------------------------


@TABLE.get(
    "/v1/node",
    "is_serving mark root plugin_dir plugin_socket pod_resources_socket pods_api_socket "
    "plugins_registry_dir checkpoint_path claims_state_path",
)
def get_node(kubelet: MockKubelet) -> shapes.Node:
    """Show the node's name, the kubelet's version and the paths of the kubelet's files."""
    return convert.node(kubelet)


@TABLE.get("/v1/node/status", "node_status")
def get_node_status(kubelet: MockKubelet) -> shapes.NodeStatus:
    """Show capacity and allocatable devices by resource, as in the node's status."""
    status = kubelet.node_status()
    return shapes.NodeStatus(capacity=status.capacity, allocatable=status.allocatable)


@TABLE.post("/v1/node/start", "start", workers=Workers.LONG)
def start_kubelet(kubelet: MockKubelet) -> None:
    """Start the kubelet after a stop, and admit its pods again."""
    kubelet.start()


@TABLE.post("/v1/node/stop", "stop", workers=Workers.ENDING)
def stop_kubelet(kubelet: MockKubelet) -> None:
    """Stop the kubelet. Pods and containers are not affected; the control API continues."""
    kubelet.stop()


@TABLE.post("/v1/node/restart", "restart", workers=Workers.LONG)
def restart_kubelet(kubelet: MockKubelet) -> None:
    """Restart the kubelet. Containers keep running."""
    kubelet.restart()


@TABLE.post("/v1/node/reboot", "reboot", workers=Workers.LONG)
def reboot_node(kubelet: MockKubelet) -> None:
    """Reboot the node: all containers stop, and every pod is admitted again."""
    kubelet.reboot()


@TABLE.post("/v1/node/sources-ready", "sources_ready", workers=Workers.ENDING)
def set_sources_ready(kubelet: MockKubelet) -> None:
    """Declare that the kubelet knows all pods of the node. Devices of unknown pods become free."""
    kubelet.sources_ready()


@TABLE.post("/v1/node/check", "check")
def check_servers(kubelet: MockKubelet) -> None:
    """Fail if a server thread of the kubelet has failed since the last check."""
    try:
        kubelet.check()
    except Exception as error:
        text = f"a server thread of the kubelet failed: {error!r}"
        raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", text) from error


@TABLE.get("/v1/resources", "capacity allocatable")
def list_resources(kubelet: MockKubelet) -> shapes.ResourceList:
    """List resources with their device counts."""
    capacity, allocatable = kubelet.capacity(), kubelet.allocatable()
    return shapes.ResourceList(
        items=[
            shapes.Resource(name=name, capacity=count, allocatable=allocatable.get(name, 0))
            for name, count in sorted(capacity.items())
        ]
    )


@TABLE.get("/v1/plugins", "plugins")
def list_plugins(kubelet: MockKubelet) -> shapes.PluginList:
    """List the plugin of each known resource."""
    return shapes.PluginList(items=list(kubelet.plugins()))


@TABLE.get("/v1/devices", "inventory")
def list_devices(kubelet: MockKubelet, *, resource: OfResource = None) -> shapes.DeviceList:
    """List devices with their health and the containers they are allocated to."""
    found = kubelet.inventory()
    return shapes.DeviceList(
        items=[each for each in found if resource is None or each.resource == resource]
    )


@TABLE.get("/v1/dra", "dra_status")
def get_dra(kubelet: MockKubelet) -> DraStatus:
    """Show DRA drivers, ResourceClaims and ResourceSlices."""
    return kubelet.dra_status()


@TABLE.get("/v1/dra/drivers", "dra_status")
def list_drivers(kubelet: MockKubelet) -> shapes.DriverList:
    """List the registered instances of DRA drivers."""
    return shapes.DriverList(items=list(kubelet.dra_status().drivers))


@TABLE.get("/v1/dra/claims", "dra_status")
def list_resource_claims(kubelet: MockKubelet) -> shapes.ResourceClaimList:
    """List the ResourceClaims of the node: their pods, their devices, and what each claim waits
    for."""
    return shapes.ResourceClaimList(items=list(kubelet.dra_status().claims))


@TABLE.get("/v1/dra/claims/{namespace}/{name}", "claim_info")
def get_resource_claim(kubelet: MockKubelet, namespace: str, name: str) -> ResourceClaimInfo:
    """Show a ResourceClaim: its pods, its devices, and what it waits for."""
    return kubelet.claim_info(namespace, name)


@TABLE.get("/v1/dra/slices", "dra_status")
def list_resource_slices(kubelet: MockKubelet) -> shapes.ResourceSliceList:
    """List the ResourceSlices that the kubelet has in memory."""
    return shapes.ResourceSliceList(items=list(kubelet.dra_status().slices))


@TABLE.get("/v1/dra/objects/{kind}", "resource_claims")
def list_dra_objects(kubelet: MockKubelet, kind: str) -> shapes.DraObjectList:
    """List the objects of a kind that the kubelet has in memory, as in the Kubernetes API.

    The kind is ResourceClaim, ResourceSlice, DeviceClass or ResourceClaimTemplate.
    """
    return shapes.DraObjectList(items=list(kubelet.resource_claims.objects(kind)))


@TABLE.post("/v1/dra/objects", "resource_claims", workers=Workers.LONG)
def apply_dra_objects(
    kubelet: MockKubelet,
    body: DraObjects,
    *,
    namespace: Annotated[str, Meta(description="namespace of objects that have none")] = "default",
) -> None:
    """Create or replace ResourceClaims, ResourceSlices, DeviceClasses and ResourceClaimTemplates.

    If the kubelet has ResourceSlices, it allocates a pod's claims when it admits the pod.
    """
    # A text of one line would be read as the path of a file.
    kubelet.resource_claims.load(f"{body}\n", namespace=namespace)


@TABLE.delete("/v1/dra/objects/{kind}/{name}", "resource_claims")
def delete_dra_object(
    kubelet: MockKubelet,
    kind: str,
    name: str,
    *,
    namespace: Annotated[
        str, Meta(description="namespace of the object, if it is a claim or a template")
    ] = "default",
) -> None:
    """Delete an object of DRA, such as a ResourceClaim, from the kubelet's memory."""
    kubelet.resource_claims.remove(kind, name, namespace=namespace)


# -- pods --------------------------------------------------------------------------------


@TABLE.post("/v1/pods", "admit", HTTPStatus.CREATED, workers=Workers.LONG)
def admit_pod(
    kubelet: MockKubelet,
    body: Manifest,
    *,
    start: Annotated[bool, Meta(description="start the containers")] = True,
    reserve: Annotated[
        bool, Meta(description="reserve the ResourceClaims in the manifest for the pod")
    ] = True,
) -> shapes.Admission:
    """Admit a pod. If the kubelet rejects the pod, the response has the reason.

    The manifest can also contain ResourceClaims. DRA drivers prepare them for the pod.
    """
    admission = kubelet.admit(body, start=start, reserve=reserve)
    # Described after the admission, so that the started containers have their states.
    try:
        pod = kubelet.pod(admission.uid)
    except RequestError:  # the pod has already been deleted
        pod = pod_info(PodRecord(admission.pod), {}, {})
    return convert.admission(admission, pod)


@TABLE.get("/v1/pods", "pods")
def list_pods(kubelet: MockKubelet) -> shapes.PodList:
    """List the pods that the kubelet knows, except deleted ones."""
    return shapes.PodList(items=list(kubelet.pods().values()))


@TABLE.delete("/v1/pods", "terminate")
def delete_pods(
    kubelet: MockKubelet,
    *,
    uid: Annotated[
        tuple[str, ...], Meta(description="UID of a pod; can be repeated", min_length=1)
    ],
) -> None:
    """Terminate and delete several pods. If a UID is unknown, no pod is deleted."""
    kubelet.terminate(*uid)


@TABLE.get(_POD, "pod")
def get_pod(kubelet: MockKubelet, uid: str) -> PodInfo:
    """Show a pod."""
    return kubelet.pod(uid)


@TABLE.delete(_POD, "terminate")
def delete_pod(kubelet: MockKubelet, uid: str) -> None:
    """Terminate and delete a pod, and free its devices."""
    kubelet.terminate(uid)


@TABLE.post(_POD + "/delete", "delete", workers=Workers.ENDING)
def delete_pod_gracefully(kubelet: MockKubelet, uid: str, body: shapes.Delete) -> None:
    """Delete a pod once its containers have terminated or its grace period has expired."""
    kubelet.delete(uid, body.grace_period)


@TABLE.post(_POD + "/finish", "finish", workers=Workers.ENDING)
def finish_pod(kubelet: MockKubelet, uid: str, body: shapes.Finish) -> shapes.Finished:
    """Let every app container of a pod terminate, and show the pod's phase."""
    return shapes.Finished(phase=kubelet.finish(uid, body.exit_codes))


@TABLE.post(_POD + "/resync", "resync", workers=Workers.LONG)
def resync_pod(kubelet: MockKubelet, uid: str) -> None:
    """Sync a pod now instead of at its next periodic sync. If a call to prepare or unprepare the
    pod's ResourceClaims has failed, the kubelet retries the call."""
    kubelet.resync(uid)


@TABLE.get(_POD + "/claims", "explain_claims")
def explain_pod_claims(kubelet: MockKubelet, uid: str) -> ClaimsExplanation:
    """Explain what each ResourceClaim of a pod waits for."""
    return kubelet.explain_claims(uid)


@TABLE.get(_POD + "/devices", "devices")
def get_pod_devices(kubelet: MockKubelet, uid: str) -> shapes.PodDevices:
    """Show the devices allocated to a pod."""
    return shapes.PodDevices(containers=kubelet.devices(uid))


@TABLE.get(_POD + "/resources-status", "allocated_resources_status")
def get_pod_resources_status(kubelet: MockKubelet, uid: str) -> shapes.PodResourcesStatus:
    """Show the field allocatedResourcesStatus of each container of a pod."""
    status = kubelet.allocated_resources_status(uid)
    return shapes.PodResourcesStatus(
        containers={name: list(resources) for name, resources in status.items()}
    )


@TABLE.get(_POD + "/container-statuses", "container_statuses")
def get_container_statuses(kubelet: MockKubelet, uid: str) -> shapes.ContainerStatusList:
    """Show the statuses of a pod's containers."""
    found = kubelet.container_statuses(uid).values()
    return shapes.ContainerStatusList(items=list(map(convert.container_status, found)))


@TABLE.get(_CONTAINER + "/options", "container_options")
def get_container_options(kubelet: MockKubelet, uid: str, container: str) -> RunOptions:
    """Show the device settings, such as mounts, that a container got at its last start."""
    return kubelet.container_options(uid, container)


@TABLE.post(_CONTAINER + "/start", "start_container", workers=Workers.LONG)
def start_container(kubelet: MockKubelet, uid: str, container: str) -> RunOptions:
    """Start a container of an admitted pod, and show its device settings, such as mounts."""
    return kubelet.start_container(uid, container)


@TABLE.post(_CONTAINER + "/restart", "restart_container", workers=Workers.LONG)
def restart_container(kubelet: MockKubelet, uid: str, container: str) -> RunOptions:
    """Start a container again with the same devices, and show its device settings."""
    return kubelet.restart_container(uid, container)


@TABLE.post(_CONTAINER + "/exit", "exit_container", workers=Workers.LONG)
def exit_container(
    kubelet: MockKubelet, uid: str, container: str, body: shapes.ExitContainer
) -> shapes.ContainerStatus:
    """Let a running container terminate, and show its status. The restart policy of the pod decides
    whether the kubelet restarts the container."""
    status = kubelet.exit_container(uid, container, body.exit_code, reason=body.reason)
    return convert.container_status(status)


# -- structured claims -------------------------------------------------------------------


@TABLE.post("/v1/pools", "publish", workers=Workers.LONG)
def publish_pools(kubelet: MockKubelet, body: Objects) -> None:
    """Publish pools of devices for structured claims."""
    kubelet.publish(body)


@TABLE.post("/v1/device-classes", "define", workers=Workers.LONG)
def define_classes(kubelet: MockKubelet, body: Objects) -> None:
    """Define device classes for structured claims."""
    kubelet.define(body)


@TABLE.post("/v1/claims", "claim", workers=Workers.LONG)
def create_claims(kubelet: MockKubelet, body: Objects) -> None:
    """Create structured claims. The request can also contain pools and device classes."""
    kubelet.claim(body)


# -- events and calls --------------------------------------------------------------------


@TABLE.get("/v1/events", "events")
def get_events(
    kubelet: MockKubelet,
    *,
    since: _Since = 0,
    follow: _Follow = False,
    kind: Annotated[
        tuple[str, ...], Meta(description="only events of this kind; can be repeated")
    ] = (),
) -> Stream[shapes.Event]:
    """Read events as lines of JSON. To resume, set `since` to the number of the last event."""
    # Checked before the stream begins, because the status cannot change afterwards.
    known = {each.value for each in EventKind}
    for each in kind:
        if each not in known:
            raise RequestError(f"unknown event {each!r}: use one of {', '.join(sorted(known))}")
    return Stream(
        "events",
        since,
        follow,
        lambda events: [event for event in events if not kind or event.kind in kind],
    )


@TABLE.get("/v1/calls", "calls")
def get_calls(
    kubelet: MockKubelet,
    *,
    since: _Since = 0,
    follow: _Follow = False,
    resource: OfResource = None,
    rpc: OfRpc = None,
    plugin: OfPlugin = None,
    code: WithCode = None,
    device_id: Annotated[
        tuple[str, ...], Meta(description="only calls with exactly these devices; can be repeated")
    ] = (),
    bytes: Annotated[bool, Meta(description="add the encoded messages, as base64")] = False,
) -> Stream[shapes.Call]:
    """Read calls between the kubelet and plugins, one line of JSON per call."""
    wanted = CallFilter(resource, rpc, plugin, device_id or None, code=code)
    return Stream("calls-with-bytes" if bytes else "calls", since, follow, wanted.matching)


@TABLE.get("/v1/calls/pending", "calls")
def get_pending_calls(kubelet: MockKubelet) -> shapes.PendingCallList:
    """List calls without a response, and open ListAndWatch streams."""
    found = sorted(kubelet.calls.in_progress, key=attrgetter("time"))
    return shapes.PendingCallList(items=[convert.pending(each) for each in found])


# -- direct calls ------------------------------------------------------------------------


@TABLE.post("/v1/direct-calls/allocate", "allocate", workers=Workers.LONG)
def call_allocate(kubelet: MockKubelet, body: shapes.Allocate) -> shapes.Allocated:
    """Call Allocate of a plugin, without a pod. The device IDs need not exist."""
    settings = kubelet.allocate(
        body.resource, body.ids, containers=body.containers, timeout=body.timeout
    )
    return shapes.Allocated(containers=list(settings))


@TABLE.post("/v1/direct-calls/preferred", "preferred", workers=Workers.LONG)
def call_get_preferred_allocation(
    kubelet: MockKubelet, body: shapes.GetPreferred
) -> shapes.Preferred:
    """Call GetPreferredAllocation of a plugin, without a pod."""
    ids = kubelet.preferred(
        body.resource, body.available, body.must_include, size=body.size, timeout=body.timeout
    )
    return shapes.Preferred(containers=list(map(list, ids)))


@TABLE.post("/v1/direct-calls/pre-start", "pre_start", workers=Workers.LONG)
def call_pre_start_container(kubelet: MockKubelet, body: shapes.PreStart) -> None:
    """Call PreStartContainer of a plugin, without a pod."""
    kubelet.pre_start(body.resource, body.ids, timeout=body.timeout)


@TABLE.post("/v1/direct-calls/options", "options", workers=Workers.LONG)
def call_get_device_plugin_options(kubelet: MockKubelet, body: shapes.GetOptions) -> PluginOptions:
    """Call GetDevicePluginOptions of a plugin."""
    return kubelet.options(body.resource, timeout=body.timeout)


@TABLE.post("/v1/direct-calls/prepare", "prepare_claims", workers=Workers.LONG)
def call_prepare_resources(kubelet: MockKubelet, body: shapes.DriverCall) -> shapes.ClaimResults:
    """Call NodePrepareResources of a DRA driver for claims, without a pod."""
    found = kubelet.prepare_claims(body.driver, body.claims, endpoint=body.endpoint)
    return shapes.ClaimResults(claims=found)


@TABLE.post("/v1/direct-calls/unprepare", "unprepare_claims", workers=Workers.LONG)
def call_unprepare_resources(kubelet: MockKubelet, body: shapes.DriverCall) -> shapes.ClaimResults:
    """Call NodeUnprepareResources of a DRA driver for claims, without a pod."""
    found = kubelet.unprepare_claims(body.driver, body.claims, endpoint=body.endpoint)
    return shapes.ClaimResults(claims=found)


# -- faults ------------------------------------------------------------------------------


def _fault_workers(arguments: Mapping[str, Any]) -> Workers:
    """Return the workers of a request to set a fault.

    A fault that is an action, such as a restart, calls plugins, so the request can take long.
    """
    body: shapes.SetFault = arguments["body"]
    # An unknown kind is rejected immediately, so its request needs no thread for long operations.
    kind = KINDS.get((body.spec or body.kind).partition(":")[0].strip())
    return Workers.LONG if kind is not None and kind.is_action else Workers.QUICK


@TABLE.post("/v1/faults", "faults", HTTPStatus.CREATED, workers=_fault_workers)
def set_fault(kubelet: MockKubelet, body: shapes.SetFault) -> shapes.Fault:
    """Set a fault of the kubelet. A fault that is an action, such as a restart, is executed
    immediately if it has no option `at`."""
    if bool(body.spec) is bool(body.kind):
        text = "body: expected either spec, such as reject-register:times=2, or kind and options"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    if body.spec and body.options:
        text = "body: options cannot be used with spec: write them into spec, as in KIND:NAME=VALUE"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    fault = body.spec or Fault.of(body.kind, **body.options)
    return convert.fault(kubelet.faults.set(fault))


@TABLE.get("/v1/faults", "faults")
def list_faults(kubelet: MockKubelet) -> shapes.FaultList:
    """List the faults that were set and not cleared."""
    found = [convert.fault(each) for each in kubelet.faults.list()]
    return shapes.FaultList(seed=kubelet.faults.seed, items=found)


@TABLE.delete("/v1/faults", "faults", workers=Workers.QUICK)
def clear_faults(
    kubelet: MockKubelet,
    *,
    kind: Annotated[str | None, Meta(description="only faults of this kind")] = None,
) -> shapes.Cleared:
    """Clear all faults, or all faults of one kind. Delayed calls resume."""
    return shapes.Cleared(count=kubelet.faults.clear(kind))


@TABLE.delete("/v1/faults/{id}", "faults", workers=Workers.QUICK)
def clear_fault(kubelet: MockKubelet, id: str) -> shapes.Cleared:
    """Clear the fault with this ID. Delayed calls resume."""
    # int() also accepts signs, spaces and underscores.
    if not id.isascii() or not id.isdigit() or len(id) > 18:
        text = f"invalid fault ID {id!r}: expected a number"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)
    return shapes.Cleared(count=kubelet.faults.clear(int(id)))


# -- waits -------------------------------------------------------------------------------
# A wait for a new event or call starts with the request, so the latest number is read before the
# first check.

_DEVICES_CHANGE: Final = frozenset(
    {
        EventKind.STARTED,
        EventKind.STOPPED,
        EventKind.CHECKPOINT_LOADED,
        EventKind.REGISTERED,
        EventKind.REPLACED,
        EventKind.PROMOTED,
        EventKind.DEVICES_UPDATED,
        EventKind.LIST_SUSPECT,
        EventKind.STREAM_ENDED,
        EventKind.ENDPOINT_EXPIRED,
    }
)
"""Kinds of events after which the set of allocatable devices can be different."""
_RECHECK_SECONDS: Final = 2.0


@TABLE.post("/v1/waits/resource", "wait_for_resource")
def wait_for_resource(kubelet: MockKubelet, body: shapes.ResourceWait) -> Wait[None]:
    """Wait until devices of a resource are allocatable."""
    return Wait(
        "events",
        body.timeout,
        # A timeout of 0: the router waits between the checks, so that no worker thread is blocked.
        lambda: kubelet.wait_for_resource(body.resource, body.count, timeout=0),
        _DEVICES_CHANGE,
        # Events without a resource, such as a start of the kubelet, concern all resources.
        lambda event: event.resource in (None, body.resource),
        # A grace period can be over although its timer has not fired yet.
        recheck=_RECHECK_SECONDS,
    )


@TABLE.post("/v1/waits/event", "wait_for_event")
def wait_for_event(kubelet: MockKubelet, body: shapes.EventWait) -> Wait[shapes.Event]:
    """Wait for the next event that matches, and show it."""
    after = kubelet.events.latest if body.after is None else body.after

    def check() -> shapes.Event:
        event = kubelet.wait_for_event(
            *body.kinds,
            resource=body.resource,
            pod=body.pod,
            text=body.text,
            after=after,
            timeout=0,
        )
        return convert.event(event)

    def may_end(event: Event) -> bool:
        return (
            event.number > after
            and body.resource in (None, event.resource)
            and body.pod in (None, event.pod)
        )

    return Wait("events", body.timeout, check, frozenset(body.kinds), may_end)


@TABLE.post("/v1/waits/call", "wait_for_call")
def wait_for_call(kubelet: MockKubelet, body: shapes.CallWait) -> Wait[shapes.Call]:
    """Wait until the next matching call has ended, and show it."""
    since = kubelet.mark() if body.since is None else body.since

    def check() -> shapes.Call:
        call = kubelet.wait_for_call(
            body.resource,
            rpc=body.rpc,
            plugin=body.plugin,
            device_ids=body.device_ids,
            request=body.request,
            response=body.response,
            code=body.code,
            since=since,
            timeout=0,
        )
        return convert.call(call, with_bytes=body.bytes)

    def may_end(call: Call) -> bool:
        # Without the messages, because decoding them takes time.
        return body.resource in (None, call.resource) and body.code in (None, call.code)

    kinds = frozenset(() if body.rpc is None else (body.rpc,))
    return Wait("calls", body.timeout, check, kinds, may_end)


# -- clock and checkpoint ----------------------------------------------------------------


@TABLE.get("/v1/clock", "clock")
def get_clock(kubelet: MockKubelet) -> shapes.Clock:
    """Show the time of the kubelet's clock."""
    clock = kubelet.clock
    manual = isinstance(clock, ManualClock)
    return shapes.Clock(manual=manual, monotonic=clock.monotonic(), time=clock.time())


@TABLE.post("/v1/clock/advance", "clock", workers=Workers.LONG)
def advance_clock(kubelet: MockKubelet, body: shapes.Advance) -> shapes.Clock:
    """Advance the kubelet's manual clock, and show its time."""
    if not isinstance(kubelet.clock, ManualClock):
        raise RequestError(
            "the kubelet uses the system clock, which cannot be advanced: start the kubelet "
            "with `run --clock manual`"
        )
    kubelet.clock.advance(body.seconds)
    return get_clock.handler(kubelet)


@TABLE.get("/v1/checkpoint", "checkpoint_path")
def get_checkpoint(kubelet: MockKubelet) -> dict[str, Any]:
    """Show the content of the device manager's checkpoint file."""
    import checkpoint as file  # imported here, because clients need no checkpoint

    path = kubelet.checkpoint_path
    try:
        data = file.read(path)
        # Decoded only to find invalid JSON, which must not become a part of the response.
        msgspec.json.decode(data)
    except file.CheckpointNotFound as error:
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, str(error)) from None
    except file.CheckpointError as error:
        raise RequestError(str(error)) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{path}: not JSON: {error}") from None
    # The text of the file is returned, because encoding it again could change numbers.
    return msgspec.Raw(data)  # type: ignore[return-value]  # the same in JSON
