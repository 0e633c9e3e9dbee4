"""What each operation does with the kubelet. Handlers may block; they run on worker threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from devicemanager.control import convert, shapes
from devicemanager.control.errors import NOT_FOUND, HttpError
from devicemanager.control.operation import Request
from devicemanager.core.errors import RequestError
from devicemanager.core.runoptions import RunOptions
from devicemanager.events.calls.call import Call
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.fault import Fault
from devicemanager.io.clock import ManualClock

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet

T = TypeVar("T")
Wanted = Callable[[Sequence[T]], Sequence[T]]
"""Chooses what a reader of a stream asked for."""


def node(kubelet: MockKubelet, _: Request) -> shapes.Node:
    return convert.node(kubelet)


def node_status(kubelet: MockKubelet, _: Request) -> shapes.NodeStatus:
    status = kubelet.node_status()
    return shapes.NodeStatus(capacity=status.capacity, allocatable=status.allocatable)


def start(kubelet: MockKubelet, _: Request) -> None:
    kubelet.start()


def stop(kubelet: MockKubelet, _: Request) -> None:
    kubelet.stop()


def restart(kubelet: MockKubelet, _: Request) -> None:
    kubelet.restart()


def reboot(kubelet: MockKubelet, _: Request) -> None:
    kubelet.reboot()


def sources_ready(kubelet: MockKubelet, _: Request) -> None:
    kubelet.sources_ready()


def check(kubelet: MockKubelet, _: Request) -> None:
    try:
        kubelet.check()
    except Exception as error:
        text = f"on a server thread: {error!r}"
        raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "server-error", text) from error


def resources(kubelet: MockKubelet, _: Request) -> shapes.ResourceList:
    capacity, allocatable = kubelet.capacity(), kubelet.allocatable()
    return shapes.ResourceList(
        items=[
            shapes.Resource(name=name, capacity=count, allocatable=allocatable.get(name, 0))
            for name, count in sorted(capacity.items())
        ]
    )


def plugins(kubelet: MockKubelet, _: Request) -> shapes.PluginList:
    return shapes.PluginList(items=list(kubelet.plugins()))


def devices(kubelet: MockKubelet, request: Request) -> shapes.DeviceList:
    wanted = request.query.resource
    found = kubelet.inventory()
    return shapes.DeviceList(
        items=[each for each in found if wanted is None or each.resource == wanted]
    )


# -- pods ------------------------------------------------------------------------------


def admit(kubelet: MockKubelet, request: Request) -> shapes.Admission:
    admission = kubelet.admit(request.body, start=request.query.start)
    return convert.admission(admission, kubelet.pods().get(admission.uid))


def pods(kubelet: MockKubelet, _: Request) -> shapes.PodList:
    return shapes.PodList(items=[convert.pod(record) for record in kubelet.pods().values()])


def pod(kubelet: MockKubelet, request: Request) -> shapes.Pod:
    return convert.pod(kubelet.pod(request.path["uid"]))


def delete_pods(kubelet: MockKubelet, request: Request) -> None:
    kubelet.terminate(*request.query.uid)


def delete_pod(kubelet: MockKubelet, request: Request) -> None:
    kubelet.terminate(request.path["uid"])


def finish(kubelet: MockKubelet, request: Request) -> shapes.Finished:
    return shapes.Finished(phase=kubelet.finish(request.path["uid"], request.body.exit_codes))


def pod_devices(kubelet: MockKubelet, request: Request) -> shapes.PodDevices:
    return shapes.PodDevices(containers=kubelet.devices(request.path["uid"]))


def resources_status(kubelet: MockKubelet, request: Request) -> shapes.PodResourcesStatus:
    status = kubelet.allocated_resources_status(request.path["uid"])
    return shapes.PodResourcesStatus(
        containers={name: list(resources) for name, resources in status.items()}
    )


def start_container(kubelet: MockKubelet, request: Request) -> RunOptions:
    return kubelet.start_container(request.path["uid"], request.path["container"])


def restart_container(kubelet: MockKubelet, request: Request) -> RunOptions:
    return kubelet.restart_container(request.path["uid"], request.path["container"])


# -- structured claims -----------------------------------------------------------------


def publish(kubelet: MockKubelet, request: Request) -> None:
    kubelet.publish(request.body)


def define(kubelet: MockKubelet, request: Request) -> None:
    kubelet.define(request.body)


def claim(kubelet: MockKubelet, request: Request) -> None:
    kubelet.claim(request.body)


# -- faults ----------------------------------------------------------------------------


def set_fault(kubelet: MockKubelet, request: Request) -> shapes.Fault:
    asked: shapes.SetFault = request.body
    if bool(asked.spec) is bool(asked.kind):
        text = "body: give either spec, such as reject-register:times=2, or kind and options"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    if asked.spec and asked.options:
        text = "body: options go with kind; spec has its own"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    fault = asked.spec or Fault.of(asked.kind, **asked.options)
    return convert.fault(kubelet.faults.set(fault))


def faults(kubelet: MockKubelet, _: Request) -> shapes.FaultList:
    found = [convert.fault(each) for each in kubelet.faults.list()]
    return shapes.FaultList(seed=kubelet.faults.seed, items=found)


def clear_faults(kubelet: MockKubelet, request: Request) -> shapes.Cleared:
    return shapes.Cleared(count=kubelet.faults.clear(request.query.kind))


def clear_fault(kubelet: MockKubelet, request: Request) -> shapes.Cleared:
    text = request.path["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, f"a fault's id is a number, not {text!r}")
    return shapes.Cleared(count=kubelet.faults.clear(int(text)))


# -- events, waits, time ---------------------------------------------------------------


def events(kubelet: MockKubelet, request: Request) -> Wanted[Event]:
    """A stream: what is wanted of the events."""
    query = request.query
    known = {kind.value for kind in EventKind}
    for kind in query.kind:
        if kind not in known:
            names = ", ".join(sorted(known))
            raise RequestError(f"there is no event {kind!r}: choose from {names}")
    kinds = frozenset(query.kind)
    return lambda events: [each for each in events if not kinds or each.kind in kinds]


def calls(kubelet: MockKubelet, request: Request) -> Wanted[Call]:
    """A stream: what is wanted of the calls."""
    from devicemanager.events.calls.matching import CallFilter

    query = request.query
    ids = query.device_id or None
    return CallFilter(query.resource, query.rpc, query.plugin, ids, code=query.code).matching


def pending_calls(kubelet: MockKubelet, _: Request) -> shapes.PendingCallList:
    found = sorted(kubelet.calls.in_progress, key=attrgetter("time"))
    return shapes.PendingCallList(items=[convert.pending(each) for each in found])


def wait_for_resource(kubelet: MockKubelet, request: Request) -> None:
    wanted = request.body
    kubelet.wait_for_resource(wanted.resource, wanted.count, timeout=request.timeout)


def wait_for_event(kubelet: MockKubelet, request: Request) -> shapes.Event:
    wanted = request.body
    return convert.event(
        kubelet.wait_for_event(
            *wanted.kinds,
            resource=wanted.resource,
            pod=wanted.pod,
            text=wanted.text,
            after=wanted.after,
            timeout=request.timeout,
        )
    )


def clock(kubelet: MockKubelet, _: Request) -> shapes.Clock:
    return shapes.Clock(
        manual=isinstance(kubelet.clock, ManualClock),
        monotonic=kubelet.clock.monotonic(),
        time=kubelet.clock.time(),
    )


def advance(kubelet: MockKubelet, request: Request) -> shapes.Clock:
    if not isinstance(kubelet.clock, ManualClock):
        raise RequestError(
            "the kubelet has the machine's clock, which cannot be turned: "
            "`run --clock manual` gives it one that can"
        )
    kubelet.clock.advance(request.body.seconds)
    return clock(kubelet, request)


def checkpoint(kubelet: MockKubelet, _: Request) -> msgspec.Raw:
    import checkpoint as file

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
    return msgspec.Raw(data)
