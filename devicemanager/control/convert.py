"""Between the kubelet's values and the shapes of the control API, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from devicemanager.control import shapes
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.events.calls.call import Call, Direction, call_data
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.fault import Fault
from devicemanager.faults.states import FaultState
from devicemanager.kubelet.pods.records import PodRecord

if TYPE_CHECKING:
    from devicemanager.events.calls.log import CallInProgress
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.pods.admission import Admission

__all__ = [
    "CALLS_DROPPED",
    "EVENTS_DROPPED",
    "admission",
    "call",
    "call_from",
    "calls_dropped",
    "event",
    "event_from",
    "events_dropped",
    "fault",
    "fault_from",
    "node",
    "pending",
    "pod",
    "record_from",
]

EVENTS_DROPPED = "events-dropped"
"""The kind of the line that stands for events which are not remembered any more."""
CALLS_DROPPED = "dropped"
"""The same among calls, in the place of the RPC."""


def node(kubelet: MockKubelet) -> shapes.Node:
    return shapes.Node(
        name=kubelet.settings.node_name,
        kubelet_version=kubelet.settings.kubelet_version,
        serving=kubelet.is_serving,
        latest_event=kubelet.events.latest,
        latest_call=kubelet.calls.latest,
        dropped_calls=kubelet.calls.dropped,
        root=str(kubelet.root),
        plugin_dir=str(kubelet.plugin_dir),
        plugin_socket=str(kubelet.plugin_socket),
        pod_resources_socket=str(kubelet.pod_resources_socket),
        plugins_registry_dir=str(kubelet.plugins_registry_dir),
        checkpoint_path=str(kubelet.checkpoint_path),
        claims_state_path=str(kubelet.claims_state_path),
    )


# -- pods ------------------------------------------------------------------------------


def pod(record: PodRecord) -> shapes.Pod:
    spec = record.pod
    return shapes.Pod(
        uid=spec.uid,
        name=spec.name,
        namespace=spec.namespace,
        phase=record.phase,
        reason=record.reason,
        message=record.message,
        admitted=record.admitted,
        restart_policy=spec.restart_policy,
        containers=[_container(each, record) for each in spec.containers],
        init_containers=[_container(each, record) for each in spec.init_containers],
        resource_claims=dict(spec.resource_claims),
    )


def _container(container: Container, record: PodRecord) -> shapes.PodContainer:
    return shapes.PodContainer(
        name=container.name,
        limits=_named(container.limits),
        requests=_named(container.requests),
        restartable=container.restartable,
        claims=list(container.claims),
        running=container.name in record.running,
        finished=container.name in record.finished,
    )


def _named(amounts: Mapping[ResourceName, int]) -> dict[str, int]:
    return {str(name): count for name, count in amounts.items()}


def record_from(shape: shapes.Pod) -> PodRecord:
    """The record as the kubelet has it."""
    both = [*shape.init_containers, *shape.containers]
    return PodRecord(
        Pod(
            PodUid(shape.uid),
            shape.name,
            shape.namespace,
            _containers_from(shape.containers),
            _containers_from(shape.init_containers),
            shape.restart_policy,
            shape.resource_claims,
        ),
        shape.phase,
        shape.reason,
        shape.message,
        shape.admitted,
        frozenset(ContainerName(each.name) for each in both if each.running),
        frozenset(ContainerName(each.name) for each in both if each.finished),
    )


def _containers_from(shapes_: Iterable[shapes.PodContainer]) -> tuple[Container, ...]:
    return tuple(
        [
            Container(
                ContainerName(each.name),
                {ResourceName(name): count for name, count in each.limits.items()},
                {ResourceName(name): count for name, count in each.requests.items()},
                each.restartable,
                tuple(each.claims),
            )
            for each in shapes_
        ]
    )


def admission(given: Admission, record: PodRecord | None) -> shapes.Admission:
    """``record`` is that of the pod; None if it was deleted at once."""
    from devicemanager.kubelet.pods.data import container_data, explanation_data

    return shapes.Admission(
        pod=pod(record or PodRecord(given.pod)),
        admitted=given.admitted,
        reason=given.reason,
        message=given.message,
        containers={
            name: msgspec.convert(container_data(outcome), shapes.ContainerOutcome)
            for name, outcome in given.containers.items()
        },
        explanation=explanation_data(given),
        explanation_text=given.explain(),
    )


# -- events ----------------------------------------------------------------------------


def event(given: Event) -> shapes.Event:
    return shapes.Event(
        number=given.number,
        time=given.time,
        kind=given.kind.value,
        message=given.message,
        warning=given.is_warning,
        resource=given.resource,
        pod=given.pod,
        details=dict(given.details),
    )


def event_from(shape: shapes.Event) -> Event:
    """The event as the kubelet has it; ``details`` as JSON tells them."""
    return Event(
        shape.time,
        EventKind(shape.kind),
        shape.message,
        shape.resource,
        shape.pod,
        shape.details,
        shape.number,
    )


def events_dropped(count: int, last: int) -> bytes:
    """The line in place of so many events."""
    return _line(
        shapes.Event(
            number=last,
            time=0.0,
            kind=EVENTS_DROPPED,
            message=f"{count} events are missing here: they are not remembered any more",
            warning=True,
            resource=None,
            pod=None,
            details={"dropped": count},
        )
    )


# -- calls -----------------------------------------------------------------------------


def call(given: Call, *, with_bytes: bool) -> shapes.Call:
    return shapes.Call(
        **call_data(given),
        request_bytes=given.request_bytes if with_bytes else None,
        response_bytes=given.response_bytes if with_bytes else None,
    )


def call_from(shape: shapes.Call) -> Call:
    """The call as the kubelet has it; of a shape with bytes."""
    return Call(
        shape.number,
        shape.time,
        shape.resource,
        shape.plugin,
        Direction(shape.direction),
        shape.rpc,
        shape.request_bytes or b"",
        shape.response_bytes,
        shape.code,
        shape.message,
        shape.duration,
        shape.stream_message,
        shape.after_event,
        shape.fault,
    )


def pending(given: CallInProgress) -> shapes.PendingCall:
    return shapes.PendingCall(
        time=given.time,
        resource=given.resource,
        plugin=given.plugin,
        direction=given.direction.value,
        rpc=given.rpc,
        messages=given.received,
    )


def calls_dropped(count: int, last: int) -> bytes:
    """The line in place of so many calls."""
    return _line(
        shapes.Call(
            number=last,
            time=0.0,
            resource=None,
            plugin="",
            direction="to-plugin",
            rpc=CALLS_DROPPED,
            stream_message=None,
            request={},
            response={"dropped": count},
            code="OK",
            message=f"{count} calls are missing here: they are not remembered any more",
            duration=0.0,
            after_event=0,
            fault="",
            request_bytes=None,
            response_bytes=None,
        )
    )


# -- faults ----------------------------------------------------------------------------


def fault(state: FaultState) -> shapes.Fault:
    options = state.fault.as_data()
    return shapes.Fault(
        id=state.id,
        kind=options.pop("kind"),
        spec=str(state.fault),
        options=options,
        seen=state.seen,
        fired=state.fired,
        holding=state.holding,
        spent=state.is_spent,
    )


def fault_from(shape: shapes.Fault) -> FaultState:
    """The fault as the kubelet has it."""
    return FaultState(shape.id, Fault.parse(shape.spec), shape.seen, shape.fired, shape.holding)


def _line(shape: msgspec.Struct) -> bytes:
    return msgspec.json.encode(shape) + b"\n"
