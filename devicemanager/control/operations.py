"""The operations on one kubelet: what each request does.

Functions may block; they run on worker threads. A test fails if a public member of
``MockKubelet`` has no operation and no reason for that.
"""

from __future__ import annotations

from http import HTTPStatus
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from devicemanager.control import convert, shapes
from devicemanager.control.errors import NOT_FOUND, HttpError
from devicemanager.control.operation import Manifest, Objects, OperationTable, Stream, Wait
from devicemanager.control.shapes import Count, OfPlugin, OfResource, OfRpc, WithCode
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.errors import RequestError
from devicemanager.core.runoptions import RunOptions
from devicemanager.events.calls.matching import CallFilter
from devicemanager.events.stream import EventKind
from devicemanager.faults.fault import Fault
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.pods.pod_info import PodInfo, pod_info
from devicemanager.kubelet.pods.records import PodRecord

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet
else:
    MockKubelet = object  # a client loads this module, too, but no kubelet

TABLE: Final = OperationTable(
    "Control API of a mock kubelet",
    """\
Controls a mock kubelet: what `MockKubelet` does in Python, over HTTP on `control.sock` in the
kubelet's directory. Pods are named by UID. Answers may get new fields; unknown fields and
parameters of requests are rejected.""",
)

_POD: Final = "/v1/pods/{uid}"
_CONTAINER: Final = _POD + "/containers/{container}"

_Since = Annotated[
    Count, Meta(description="only entries after the one with this number; 0: all that are stored")
]
_Follow = Annotated[bool, Meta(description="continue with new entries as they come")]


# -- the node ----------------------------------------------------------------------------


@TABLE.get(
    "/v1/node",
    "is_serving mark root plugin_dir plugin_socket pod_resources_socket pods_api_socket "
    "plugins_registry_dir checkpoint_path claims_state_path",
)
def get_node(kubelet: MockKubelet) -> shapes.Node:
    """Show the node and the paths of its kubelet's files."""
    return convert.node(kubelet)


@TABLE.get("/v1/node/status", "node_status")
def get_node_status(kubelet: MockKubelet) -> shapes.NodeStatus:
    """Show the devices in the node's status."""
    status = kubelet.node_status()
    return shapes.NodeStatus(capacity=status.capacity, allocatable=status.allocatable)


@TABLE.post("/v1/node/start", "start")
def start_kubelet(kubelet: MockKubelet) -> None:
    """Start the kubelet again after a stop, and admit its pods again."""
    kubelet.start()


@TABLE.post("/v1/node/stop", "stop")
def stop_kubelet(kubelet: MockKubelet) -> None:
    """Stop the kubelet. Pods and containers are not affected; the control API continues."""
    kubelet.stop()


@TABLE.post("/v1/node/restart", "restart")
def restart_kubelet(kubelet: MockKubelet) -> None:
    """Restart the kubelet; containers keep running."""
    kubelet.restart()


@TABLE.post("/v1/node/reboot", "reboot")
def reboot_node(kubelet: MockKubelet) -> None:
    """Reboot the node: all containers stop, and every pod is admitted again."""
    kubelet.reboot()


@TABLE.post("/v1/node/sources-ready", "sources_ready")
def set_sources_ready(kubelet: MockKubelet) -> None:
    """Declare that all pods of the node are known, and free the devices of others."""
    kubelet.sources_ready()


@TABLE.post("/v1/node/check", "check")
def check_servers(kubelet: MockKubelet) -> None:
    """Report the first error on a server thread since the last check, if any."""
    try:
        kubelet.check()
    except Exception as error:
        text = f"on a server thread: {error!r}"
        raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", text) from error


@TABLE.get("/v1/resources", "capacity allocatable")
def list_resources(kubelet: MockKubelet) -> shapes.ResourceList:
    """List resources with their numbers of devices."""
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


# -- pods --------------------------------------------------------------------------------


@TABLE.post("/v1/pods", "admit", HTTPStatus.CREATED)
def admit_pod(
    kubelet: MockKubelet,
    body: Manifest,
    *,
    start: Annotated[bool, Meta(description="start the containers")] = True,
) -> shapes.Admission:
    """Admit a pod. A rejection is an answer, too."""
    admission = kubelet.admit(body, start=start)
    # Described only now, so that it has the states of the containers that were started.
    try:
        pod = kubelet.pod(admission.uid)
    except RequestError:  # it was deleted at once
        pod = pod_info(PodRecord(admission.pod), {}, {})
    return convert.admission(admission, pod)


@TABLE.get("/v1/pods", "pods")
def list_pods(kubelet: MockKubelet) -> shapes.PodList:
    """List the pods that are known and not deleted."""
    return shapes.PodList(items=list(kubelet.pods().values()))


@TABLE.delete("/v1/pods", "terminate")
def delete_pods(
    kubelet: MockKubelet,
    *,
    uid: Annotated[tuple[str, ...], Meta(description="UIDs; can be repeated", min_length=1)],
) -> None:
    """Terminate and delete pods, all of them or none."""
    kubelet.terminate(*uid)


@TABLE.get(_POD, "pod")
def get_pod(kubelet: MockKubelet, uid: str) -> PodInfo:
    """Show one pod."""
    return kubelet.pod(uid)


@TABLE.delete(_POD, "terminate")
def delete_pod(kubelet: MockKubelet, uid: str) -> None:
    """Terminate and delete a pod, and free its devices."""
    kubelet.terminate(uid)


@TABLE.post(_POD + "/delete", "delete")
def delete_pod_gracefully(kubelet: MockKubelet, uid: str, body: shapes.Delete) -> None:
    """Delete a pod once its containers have terminated or its grace period has expired."""
    kubelet.delete(uid, body.grace_period)


@TABLE.post(_POD + "/finish", "finish")
def finish_pod(kubelet: MockKubelet, uid: str, body: shapes.Finish) -> shapes.Finished:
    """Let every app container of a pod terminate by itself."""
    return shapes.Finished(phase=kubelet.finish(uid, body.exit_codes))


@TABLE.get(_POD + "/devices", "devices")
def get_pod_devices(kubelet: MockKubelet, uid: str) -> shapes.PodDevices:
    """Show the devices allocated to a pod."""
    return shapes.PodDevices(containers=kubelet.devices(uid))


@TABLE.get(_POD + "/resources-status", "allocated_resources_status")
def get_pod_resources_status(kubelet: MockKubelet, uid: str) -> shapes.PodResourcesStatus:
    """Show allocatedResourcesStatus of a pod."""
    status = kubelet.allocated_resources_status(uid)
    return shapes.PodResourcesStatus(
        containers={name: list(resources) for name, resources in status.items()}
    )


@TABLE.get(_POD + "/container-statuses", "container_statuses")
def get_container_statuses(kubelet: MockKubelet, uid: str) -> shapes.ContainerStatusList:
    """Show the statuses of a pod's containers."""
    found = kubelet.container_statuses(uid).values()
    return shapes.ContainerStatusList(items=list(map(convert.container_status, found)))


@TABLE.post(_CONTAINER + "/start", "start_container")
def start_container(kubelet: MockKubelet, uid: str, container: str) -> RunOptions:
    """Start a container of an admitted pod, and show its settings."""
    return kubelet.start_container(uid, container)


@TABLE.post(_CONTAINER + "/restart", "restart_container")
def restart_container(kubelet: MockKubelet, uid: str, container: str) -> RunOptions:
    """Start a container again with the same devices, and show its settings."""
    return kubelet.restart_container(uid, container)


@TABLE.post(_CONTAINER + "/exit", "exit_container")
def exit_container(
    kubelet: MockKubelet, uid: str, container: str, body: shapes.ExitContainer
) -> shapes.ContainerStatus:
    """Let a running container terminate; the kubelet restarts it or ends the pod."""
    status = kubelet.exit_container(uid, container, body.exit_code, reason=body.reason)
    return convert.container_status(status)


# -- structured claims -------------------------------------------------------------------


@TABLE.post("/v1/pools", "publish")
def publish_pools(kubelet: MockKubelet, body: Objects) -> None:
    """Publish pools of devices for structured claims."""
    kubelet.publish(body)


@TABLE.post("/v1/device-classes", "define")
def define_classes(kubelet: MockKubelet, body: Objects) -> None:
    """Define classes for structured claims."""
    kubelet.define(body)


@TABLE.post("/v1/claims", "claim")
def create_claims(kubelet: MockKubelet, body: Objects) -> None:
    """Create pools, classes and claims of structured claims."""
    kubelet.claim(body)


# -- events and calls --------------------------------------------------------------------


@TABLE.get("/v1/events", "events")
def get_events(
    kubelet: MockKubelet,
    *,
    since: _Since = 0,
    follow: _Follow = False,
    kind: Annotated[tuple[str, ...], Meta(description="only of this kind; can be repeated")] = (),
) -> Stream[shapes.Event]:
    """Read events. The answer has a line of JSON for each; to resume, send the last number."""
    # Checked before the stream begins: afterwards there is no status any more to answer with.
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
        tuple[str, ...], Meta(description="only with exactly these devices; can be repeated")
    ] = (),
    bytes: Annotated[bool, Meta(description="with the messages as base64")] = False,
) -> Stream[shapes.Call]:
    """Read calls between the kubelet and plugins. The answer has a line of JSON for each."""
    wanted = CallFilter(resource, rpc, plugin, device_id or None, code=code)
    return Stream("calls-with-bytes" if bytes else "calls", since, follow, wanted.matching)


@TABLE.get("/v1/calls/pending", "calls")
def get_pending_calls(kubelet: MockKubelet) -> shapes.PendingCallList:
    """List calls without a response yet, and open ListAndWatch streams."""
    found = sorted(kubelet.calls.in_progress, key=attrgetter("time"))
    return shapes.PendingCallList(items=[convert.pending(each) for each in found])


# -- direct calls ------------------------------------------------------------------------


@TABLE.post("/v1/direct-calls/allocate", "allocate")
def call_allocate(kubelet: MockKubelet, body: shapes.Allocate) -> shapes.Allocated:
    """Call Allocate of a plugin with any devices, without a pod."""
    settings = kubelet.allocate(
        body.resource, body.ids, containers=body.containers, timeout=body.timeout
    )
    return shapes.Allocated(containers=list(settings))


@TABLE.post("/v1/direct-calls/preferred", "preferred")
def call_get_preferred_allocation(
    kubelet: MockKubelet, body: shapes.GetPreferred
) -> shapes.Preferred:
    """Call GetPreferredAllocation of a plugin, without a pod."""
    ids = kubelet.preferred(
        body.resource, body.available, body.must_include, size=body.size, timeout=body.timeout
    )
    return shapes.Preferred(containers=list(map(list, ids)))


@TABLE.post("/v1/direct-calls/pre-start", "pre_start")
def call_pre_start_container(kubelet: MockKubelet, body: shapes.PreStart) -> None:
    """Call PreStartContainer of a plugin, without a pod."""
    kubelet.pre_start(body.resource, body.ids, timeout=body.timeout)


@TABLE.post("/v1/direct-calls/options", "options")
def call_get_device_plugin_options(kubelet: MockKubelet, body: shapes.GetOptions) -> PluginOptions:
    """Call GetDevicePluginOptions of a plugin."""
    return kubelet.options(body.resource, timeout=body.timeout)


# -- faults ------------------------------------------------------------------------------


@TABLE.post("/v1/faults", "faults", HTTPStatus.CREATED)
def set_fault(kubelet: MockKubelet, body: shapes.SetFault) -> shapes.Fault:
    """Set a fault of the kubelet. An action without `at` is executed at once."""
    if bool(body.spec) is bool(body.kind):
        text = "body: give either spec, such as reject-register:times=2, or kind and options"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    if body.spec and body.options:
        text = "body: options go with kind; spec has its own"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    fault = body.spec or Fault.of(body.kind, **body.options)
    return convert.fault(kubelet.faults.set(fault))


@TABLE.get("/v1/faults", "faults")
def list_faults(kubelet: MockKubelet) -> shapes.FaultList:
    """List the faults that are set."""
    found = [convert.fault(each) for each in kubelet.faults.list()]
    return shapes.FaultList(seed=kubelet.faults.seed, items=found)


@TABLE.delete("/v1/faults", "faults")
def clear_faults(
    kubelet: MockKubelet,
    *,
    kind: Annotated[str | None, Meta(description="only of this kind")] = None,
) -> shapes.Cleared:
    """Clear all faults or those of one kind; delayed calls resume."""
    return shapes.Cleared(count=kubelet.faults.clear(kind))


@TABLE.delete("/v1/faults/{id}", "faults")
def clear_fault(kubelet: MockKubelet, id: str) -> shapes.Cleared:
    """Clear one fault."""
    # int() also accepts signs, spaces and underscores.
    if not id.isascii() or not id.isdigit() or len(id) > 18:
        text = f"invalid fault ID {id!r}: expected a number"
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, text)
    return shapes.Cleared(count=kubelet.faults.clear(int(id)))


# -- waits -------------------------------------------------------------------------------
# "Only new ones" counts from the request, so the number of now is taken before the first check.


@TABLE.post("/v1/waits/resource", "wait_for_resource")
def wait_for_resource(kubelet: MockKubelet, body: shapes.ResourceWait) -> Wait[None]:
    """Wait until devices of a resource are allocatable."""
    return Wait(
        "events",
        body.timeout,
        lambda: kubelet.wait_for_resource(body.resource, body.count, timeout=0),
    )


@TABLE.post("/v1/waits/event", "wait_for_event")
def wait_for_event(kubelet: MockKubelet, body: shapes.EventWait) -> Wait[shapes.Event]:
    """Wait for an event."""
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

    return Wait("events", body.timeout, check)


@TABLE.post("/v1/waits/call", "wait_for_call")
def wait_for_call(kubelet: MockKubelet, body: shapes.CallWait) -> Wait[shapes.Call]:
    """Wait for a call between the kubelet and a plugin to end."""
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

    return Wait("calls", body.timeout, check)


# -- clock and checkpoint ----------------------------------------------------------------


@TABLE.get("/v1/clock", "clock")
def get_clock(kubelet: MockKubelet) -> shapes.Clock:
    """Read the kubelet's clock."""
    clock = kubelet.clock
    manual = isinstance(clock, ManualClock)
    return shapes.Clock(manual=manual, monotonic=clock.monotonic(), time=clock.time())


@TABLE.post("/v1/clock/advance", "clock")
def advance_clock(kubelet: MockKubelet, body: shapes.Advance) -> shapes.Clock:
    """Advance a manual clock."""
    if not isinstance(kubelet.clock, ManualClock):
        raise RequestError(
            "the kubelet uses the system clock, which cannot be advanced: start it with "
            "`run --clock manual`"
        )
    kubelet.clock.advance(body.seconds)
    return get_clock.handler(kubelet)


@TABLE.get("/v1/checkpoint", "checkpoint_path")
def get_checkpoint(kubelet: MockKubelet) -> dict[str, Any]:
    """Show the checkpoint file."""
    import checkpoint as file  # not at the top: clients need no checkpoint

    path = kubelet.checkpoint_path
    try:
        data = file.read(path)
        msgspec.json.decode(data)
    except file.CheckpointNotFound as error:
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, str(error)) from None
    except file.CheckpointError as error:
        raise RequestError(str(error)) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{path}: not JSON: {error}") from None
    # The text on disk: encoding it again could change numbers.
    return msgspec.Raw(data)  # type: ignore[return-value]  # the same in JSON
