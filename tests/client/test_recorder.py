"""Kubernetes events of a node: created, counted, combined and dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from devicemanager.client.errors import ApiError
from devicemanager.client.recorder import EventRecorder, ObjectReference
from devicemanager.client.work_queue import Priority
from devicemanager.io.clock import ManualClock

NODE = ObjectReference("Node", "n", "n-uid")
EVENTS = "/api/v1/namespaces/default/events"


def pod(number: int) -> ObjectReference:
    return ObjectReference("Pod", f"p{number}", f"u{number}", "ml")


@attrs.define
class Written:
    """An API server for events, and a work queue that runs work at once."""

    requests: list[tuple[str, str, Any]] = attrs.field(factory=list)
    keys: list[tuple[Priority, str]] = attrs.field(factory=list)
    fails: bool = False

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        self.requests.append((method, path, body))
        assert more["user"] == "system:node:n"
        if self.fails:
            raise ApiError(403, "Forbidden", "no", method, path)
        return body

    def put(self, priority: Priority, key: str, work: Callable[[], None]) -> None:
        self.keys.append((priority, key))
        work()

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.requests]

    @property
    def messages(self) -> list[str]:
        return [body["message"] for _, _, body in self.requests]


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000.0)


@pytest.fixture
def recorder(written: Written, clock: ManualClock) -> EventRecorder:
    return EventRecorder("n", written, written, clock, "system:node:n")


def test_event_has_the_fields_of_a_kubelet_event(
    written: Written, clock: ManualClock, recorder: EventRecorder
) -> None:
    recorder.record(NODE, "Warning", "Rebooted", "it was")
    when = "2027-01-15T08:00:00Z"
    assert written.keys == [(Priority.EVENT, "event/n/n")]
    ((method, path, event),) = written.requests
    assert (method, path) == ("POST", EVENTS)
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"n.{1_800_000_000 * 10**9 + 1:x}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n-uid"},
        "reason": "Rebooted",
        "message": "it was",
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
        "type": "Warning",
        "reportingComponent": "kubelet",
        "reportingInstance": "n",
    }
    clock.advance(61)
    recorder.record(NODE, "Warning", "Rebooted", "it was")
    assert written.requests[1] == (
        "PATCH",
        f"{EVENTS}/{event['metadata']['name']}",
        {"count": 2, "lastTimestamp": "2027-01-15T08:01:01Z", "message": "it was"},
    )
    recorder.record(pod(1), "Normal", "Started", "it runs")
    _, path, event = written.requests[2]
    assert path == "/api/v1/namespaces/ml/events"
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "ml"
    assert written.keys[2] == (Priority.EVENT, "event/n/p1")


def test_burst_of_25_events_per_object_then_one_per_five_minutes(
    written: Written, clock: ManualClock, recorder: EventRecorder
) -> None:
    for number in range(30):
        recorder.record(NODE, "Normal", f"R{number}", "x")
    assert len(written.requests) == 25
    clock.advance(299)
    recorder.record(NODE, "Normal", "late", "x")
    assert len(written.requests) == 25
    clock.advance(1)
    for _ in range(2):
        recorder.record(NODE, "Normal", "late", "x")
    assert len(written.requests) == 26
    recorder.record(pod(1), "Normal", "other", "x")
    assert len(written.requests) == 27
    # The burst stays 25 after any time without events.
    clock.advance(1_000_000)
    for number in range(30):
        recorder.record(NODE, "Normal", f"S{number}", "x")
    assert len(written.requests) == 27 + 25


def test_different_messages_are_combined_after_ten(
    written: Written, clock: ManualClock, recorder: EventRecorder
) -> None:
    for number in range(12):
        recorder.record(NODE, "Normal", "R", f"m{number}")
    recorder.record(NODE, "Normal", "R", "m3")
    combined = "(combined from similar events): "
    assert written.messages[9:] == ["m9", f"{combined}m10", f"{combined}m11", "m3"]
    assert written.methods[9:] == ["POST", "POST", "PATCH", "PATCH"]
    recorder.record(NODE, "Warning", "R", "m12")
    clock.advance(600)
    recorder.record(NODE, "Normal", "R", "m13")
    clock.advance(1)
    recorder.record(NODE, "Normal", "R", "m14")
    assert written.messages[13:] == ["m12", f"{combined}m13", "m14"]


def test_events_of_64_objects_are_remembered(written: Written, recorder: EventRecorder) -> None:
    for number in range(64):
        recorder.record(pod(number), "Normal", "R", "m")
    recorder.record(pod(0), "Normal", "R", "m")
    assert written.methods == ["POST"] * 64 + ["PATCH"]
    recorder.record(pod(64), "Normal", "R", "m")
    recorder.record(pod(0), "Normal", "R", "m")
    assert written.methods[65:] == ["POST", "POST"]


def test_failed_write_is_lost(written: Written, recorder: EventRecorder) -> None:
    recorder.record(NODE, "Normal", "R", "m")
    written.fails = True
    recorder.record(NODE, "Normal", "R", "m")
    written.fails = False
    recorder.record(NODE, "Normal", "R", "m")
    recorder.record(NODE, "Normal", "R", "m")
    assert written.methods == ["POST", "PATCH", "POST", "PATCH"]
    assert [body["count"] for _, _, body in written.requests] == [1, 2, 1, 2]


def test_equal_messages_count_as_one_of_the_ten(written: Written, recorder: EventRecorder) -> None:
    for _ in range(5):
        recorder.record(NODE, "Normal", "R", "same")
    for number in range(9):
        recorder.record(NODE, "Normal", "R", f"m{number}")
    assert written.messages == ["same"] * 5 + [f"m{number}" for number in range(9)]
