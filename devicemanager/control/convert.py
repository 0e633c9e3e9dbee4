"""Conversion between the kubelet's Python objects and the JSON shapes of the control API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devicemanager.control import shapes
from devicemanager.core.ids import ContainerName
from devicemanager.core.podstatus import containers as statuses
from devicemanager.core.podstatus.containers import Running, Terminated, Waiting
from devicemanager.core.printable import counted
from devicemanager.events.calls.call import Call, Direction, call_data
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.fault import Fault
from devicemanager.faults.states import FaultState
from devicemanager.io import typed_json
from devicemanager.kubelet.pods.pod_info import PodInfo

if TYPE_CHECKING:
    from devicemanager.events.calls.log import CallInProgress
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.pods.admission import Admission

EVENTS_DROPPED = "events-dropped"
"""Kind of the placeholder event that readers get in place of events that are no longer stored."""
CALLS_DROPPED = "dropped"
"""RPC name of the placeholder call that readers get in place of calls that are no longer stored."""


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
        pods_api_socket=str(kubelet.pods_api_socket),
        plugins_registry_dir=str(kubelet.plugins_registry_dir),
        checkpoint_path=str(kubelet.checkpoint_path),
        claims_state_path=str(kubelet.claims_state_path),
    )


# -- pods --------------------------------------------------------------------------------


def admission(given: Admission, pod: PodInfo) -> shapes.Admission:
    # Imported here because clients also load this module, and admissions need the kubelet.
    from devicemanager.kubelet.pods.data import container_data, explanation_data

    return shapes.Admission(
        pod=pod,
        admitted=given.admitted,
        undecided=given.undecided,
        reason=given.reason,
        message=given.message,
        containers={
            name: typed_json.convert(container_data(outcome), shapes.ContainerOutcome)
            for name, outcome in given.containers.items()
        },
        explanation=explanation_data(given),
        explanation_text=given.explain(),
    )


def container_status(given: statuses.ContainerStatus) -> shapes.ContainerStatus:
    # JSON has no union types: one of three fields is set, as in the Kubernetes API.
    state = given.state
    return shapes.ContainerStatus(
        name=given.name,
        state=shapes.ContainerState(
            waiting=state if isinstance(state, Waiting) else None,
            running=state if isinstance(state, Running) else None,
            terminated=state if isinstance(state, Terminated) else None,
        ),
        last_termination=given.last_termination,
        restart_count=given.restart_count,
    )


def container_status_from(shape: shapes.ContainerStatus) -> statuses.ContainerStatus:
    (state,) = shape.state.given()
    return statuses.ContainerStatus(
        ContainerName(shape.name), state, shape.last_termination, shape.restart_count
    )


# -- events ------------------------------------------------------------------------------


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
    """Return the ``Event`` that a JSON shape describes. The values in ``details`` keep their JSON
    types."""
    return Event(
        shape.time,
        EventKind(shape.kind),
        shape.message,
        shape.resource,
        shape.pod,
        shape.details,
        shape.number,
    )


def events_dropped(count: int, last: int) -> shapes.Event:
    """Return a placeholder event, in place of ``count`` events that are no longer stored. ``last``
    is the number of the last of these events."""
    return shapes.Event(
        number=last,
        time=0.0,
        kind=EVENTS_DROPPED,
        message=f"{counted(count, 'event')} missing here: no longer stored",
        warning=True,
        resource=None,
        pod=None,
        details={"dropped": count},
    )


# -- calls -------------------------------------------------------------------------------


def call(given: Call, *, with_bytes: bool) -> shapes.Call:
    return shapes.Call(
        **call_data(given),
        request_bytes=given.request_bytes if with_bytes else None,
        response_bytes=given.response_bytes if with_bytes else None,
    )


def call_from(shape: shapes.Call) -> Call:
    """Return the ``Call`` that a JSON shape describes. The shape must have ``request_bytes``, from
    which the ``Call`` decodes its request."""
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


def calls_dropped(count: int, last: int) -> shapes.Call:
    """Return a placeholder call, in place of ``count`` calls that are no longer stored. ``last`` is
    the number of the last of these calls."""
    # All other fields are null, so readers need no second type for this line.
    facts: dict[str, Any] = dict.fromkeys(shapes.Call.__struct_fields__)
    return shapes.Call(
        **facts
        | {
            "number": last,
            "time": 0.0,
            "plugin": "",
            "direction": Direction.TO_PLUGIN.value,
            "rpc": CALLS_DROPPED,
            "request": {},
            "response": {"dropped": count},
            "code": "OK",
            "message": f"{counted(count, 'call')} missing here: no longer stored",
            "duration": 0.0,
            "after_event": 0,
            "fault": "",
        }
    )


# -- faults ------------------------------------------------------------------------------


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
    # Parsed from ``spec``, which has all options; ``options`` omits those with default values.
    return FaultState(shape.id, Fault.parse(shape.spec), shape.seen, shape.fired, shape.holding)
