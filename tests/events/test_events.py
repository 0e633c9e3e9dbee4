"""The event stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import Event, EventKind, EventStream, event_kind, notify
from devicemanager.io.clock import ManualClock, SystemClock

STARTED, STOPPED, REJECTED = EventKind.STARTED, EventKind.STOPPED, EventKind.REJECTED
PATIENCE = 20.0


def messages(stream: EventStream, *kinds: EventKind) -> list[str]:
    return [event.message for event in stream.recent(*kinds)]


def test_published_events_have_time_and_details():
    clock = ManualClock(5.0)
    stream = EventStream(clock)
    stream.publish(REJECTED, "no", resource="vendor.com/gpu", pod="uid", requested=2)
    clock.advance(1.0)
    stream.publish(STARTED, "up")
    first, second = stream.recent()
    assert first == Event(5.0, REJECTED, "no", "vendor.com/gpu", "uid", {"requested": 2})
    assert second == Event(6.0, STARTED, "up")
    assert str(first) == "rejected: no"
    assert (first.is_warning, second.is_warning) == (True, False)


def test_recent_returns_latest_events():
    stream = EventStream(keep=3)
    for number in range(5):
        stream.publish(STARTED if number % 2 else STOPPED, str(number))
    assert messages(stream) == ["2", "3", "4"]
    assert messages(stream, STOPPED) == ["2", "4"]
    assert messages(stream, REJECTED) == []
    assert messages(stream, STARTED, STOPPED) == ["2", "3", "4"]


def test_subscription_ends_when_its_function_is_called():
    stream = EventStream()
    one, two = [], []
    stop_one = stream.subscribe(one.append)
    stream.subscribe(two.append)
    stream.publish(STARTED, "a")
    stop_one()
    stop_one()
    stream.publish(STARTED, "b")
    assert [event.message for event in one] == ["a"]
    assert [event.message for event in two] == ["a", "b"]


def test_each_subscription_of_a_callback_ends_separately():
    stream = EventStream()
    seen: list[Event] = []
    note = seen.append
    stop_one, stop_two = stream.subscribe(note), stream.subscribe(note)
    stop_one()
    stop_one()
    stream.publish(STARTED, "a")
    assert [event.message for event in seen] == ["a"]
    stop_two()
    stream.publish(STARTED, "b")
    assert [event.message for event in seen] == ["a"]


def test_failing_callback_does_not_affect_others(caplog):
    stream = EventStream()
    seen = []

    def fail(event: Event) -> None:
        raise ZeroDivisionError

    stream.subscribe(fail)
    stream.subscribe(seen.append)
    stream.publish(STARTED, "a")
    assert len(seen) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "an event callback failed on started: a"
    ]


def test_callback_can_publish_and_unsubscribe():
    stream = EventStream()

    def once(event: Event) -> None:
        stop()
        stream.publish(STOPPED, f"after {event.message}")

    stop = stream.subscribe(once)
    stream.publish(STARTED, "a")
    stream.publish(STARTED, "b")
    assert messages(stream) == ["a", "after a", "b"]


def test_message_is_escaped_and_cut():
    stream = EventStream()
    stream.publish(REJECTED, "\x1b[2J" + "x" * 10_000, resource="y" * 10_000, device="\x1b[2J")
    (event,) = stream.recent()
    assert event.message.startswith(r"\x1b[2Jxxx")
    assert len(event.message) < 3000
    assert len(event.resource) == 512
    assert event.details == {"device": "\x1b[2J"}  # details are stored unchanged


def test_is_delivering_is_true_inside_callback():
    stream = EventStream()
    seen = []
    stream.subscribe(lambda event: seen.append(stream.is_delivering))
    stream.publish(STARTED, "a")
    assert seen == [True] and not stream.is_delivering


def test_wait_returns_at_once_if_condition_holds():
    assert EventStream().wait_for(lambda: True, timeout=0)


def test_wait_times_out():
    evaluated = []
    assert not EventStream().wait_for(lambda: bool(evaluated.append(1)), timeout=0)
    assert evaluated == [1]


def test_wait_evaluates_condition_after_each_event():
    # The condition calls the stream, which would deadlock if a wait held the stream's lock.
    stream = EventStream()
    evaluated = threading.Event()

    def has_started() -> bool:
        started = bool(stream.recent(STARTED))
        evaluated.set()
        return started

    def publish() -> None:
        assert evaluated.wait(PATIENCE)
        stream.publish(STOPPED, "not yet")
        stream.publish(STARTED, "now")

    thread = threading.Thread(target=publish)
    thread.start()
    assert stream.wait_for(has_started, PATIENCE)
    thread.join(PATIENCE)


def test_event_during_evaluation_is_not_missed():
    class NeverWaits(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("waits although an event was published")

    stream = EventStream()
    # With a real condition, a missed event would only delay the end of the wait.
    stream._changed = NeverWaits()
    evaluations = []

    def publishes_while_evaluated() -> bool:
        evaluations.append(1)
        if len(evaluations) == 1:
            stream.publish(STARTED, "now")
        return len(evaluations) == 2

    assert stream.wait_for(publishes_while_evaluated, PATIENCE)
    assert len(evaluations) == 2


# -- kinds ---------------------------------------------------------------------------------

KINDS = [
    "started",
    "stopped",
    "registered",
    "registration-rejected!",
    "replaced",
    "promoted",
    "devices-updated",
    "list-suspect!",
    "stream-ended!",
    "endpoint-expired",
    "admitted",
    "rejected!",
    "allocated",
    "allocation-suspect!",
    "conflict!",
    "container-started",
    "container-failed!",
    "container-exited",
    "container-back-off!",
    "resize-started",
    "resize-pending",
    "resize-completed",
    "deleting",
    "finished",
    "terminated",
    "device-health",
    "health-dropped!",
    "unknown-resource!",
    "checkpoint-loaded",
    "checkpoint-written",
    "checkpoint-failed!",
    "checkpoint-set-aside!",
    "process-started",
    "process-ended",
    "pool-published",
    "claim-allocated",
    "claim-released",
    "claim-deletion-waits",
    "claim-device-gone!",
    "claim-unknown!",
    "claims-loaded",
    "claims-failed!",
    "claims-set-aside!",
    "driver-registered",
    "driver-connected",
    "driver-disconnected!",
    "driver-deregistered",
    "claims-prepared",
    "prepare-failed!",
    "claims-unprepared",
    "unprepare-failed!",
    "slices-wiped",
    "dra-state-loaded",
    "dra-state-failed!",
    "dra-state-set-aside!",
    "pod-unschedulable!",
    "dra-objects-changed",
    "watch-dropped!",
    "fault",
    "server-error!",
]
"""Names of all events in order, as users and clients know them; warnings end with ``!``."""


def test_kinds_and_warnings_are_those_that_clients_know():
    stream = EventStream()
    for kind in EventKind:
        stream.publish(kind, "")
    found = [f"{event.kind.value}{'!' * event.is_warning}" for event in stream.recent()]
    assert found == KINDS
    assert [kind.name.lower().replace("_", "-") for kind in EventKind] == list(EventKind)


def test_event_kind_is_read_from_its_name():
    assert event_kind("device-health") is EventKind.DEVICE_HEALTH
    assert event_kind(REJECTED) is REJECTED
    with pytest.raises(RequestError, match=r"^unknown event 'no': use one of started, stopped, "):
        event_kind("no")
    with pytest.raises(RequestError, match=r"^unknown event 'no'"):
        EventStream().recent("started", "no")


# -- details -------------------------------------------------------------------------------


def test_events_are_numbered_from_1():
    stream = EventStream(ManualClock(7.0))
    assert (stream.latest, stream.now()) == (0, 7.0)
    for name in "ab":
        stream.publish(STARTED, name)
    assert [event.number for event in stream.recent()] == [1, 2]
    assert stream.latest == 2


def test_event_without_subject_has_defaults():
    event = Event(1.0, STARTED, "up")
    assert (event.resource, event.pod, event.details, event.number) == (None, None, {}, 0)
    assert event == Event(1.0, STARTED, "up", number=3)


@pytest.mark.parametrize(("keep", "stored"), [(1, 1), (16, 16), (17, 17), (40, 40)])
def test_stream_stores_the_given_number_of_events(keep: int, stored: int):
    stream = EventStream(keep=keep)
    for number in range(41):
        stream.publish(STARTED, str(number))
    assert messages(stream) == [str(number) for number in range(41 - stored, 41)]


def test_stream_stores_1000_events_by_default():
    stream = EventStream()
    for _ in range(1002):
        stream.publish(STARTED, "")
    assert [event.number for event in stream.recent()] == [*range(3, 1003)]


@pytest.mark.parametrize("length", [511, 512, 513])
def test_resource_is_cut_after_512_characters(length: int):
    stream = EventStream()
    stream.publish(STARTED, "", resource="x" * length)
    assert len(stream.recent()[0].resource) == min(length, 512)


# -- subscriptions -------------------------------------------------------------------------


def test_subscribe_rejects_what_is_not_callable():
    stream = EventStream()
    with pytest.raises(TypeError, match=r"^invalid callback 3: expected a callable$"):
        stream.subscribe(3)
    stream.publish(STARTED, "a")


@pytest.mark.parametrize("error", [SystemExit("no"), ZeroDivisionError()])
def test_notify_logs_every_error(error: BaseException, caplog: pytest.LogCaptureFixture):
    seen = []

    def fail(value: str) -> None:
        raise error

    notify([fail, seen.append], "value", "a test")
    assert seen == ["value"]
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("devicemanager", "a test failed on value")


def test_keyboard_interrupt_of_a_callback_reaches_the_publisher():
    stream = EventStream()

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    stop = stream.subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        stream.publish(STARTED, "a")
    assert not stream.is_delivering
    stop()
    stream.publish(STARTED, "b")
    assert messages(stream) == ["a", "b"]


def test_is_delivering_distinguishes_streams_and_nesting():
    outer, inner = EventStream(), EventStream()
    seen = []

    def note() -> None:
        seen.append((outer.is_delivering, inner.is_delivering))

    def publish(event: Event) -> None:
        note()
        inner.publish(STARTED, "inner")
        note()

    outer.subscribe(publish)
    inner.subscribe(lambda event: note())
    outer.publish(STARTED, "outer")
    note()
    assert seen == [(True, False), (True, True), (True, False), (False, False)]


# -- waits ---------------------------------------------------------------------------------


class Waits(threading.Condition):
    """A condition that does not wait: it records the timeouts, and calls a function instead."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__(threading.RLock())
        self.after = after
        self.waited: list[float] = []
        self.notified = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self.after()
        return True

    def notify_all(self) -> None:
        self.notified += 1

    def notify(self, n: int = 1) -> None:
        raise AssertionError("notify_all calls notify only for real waiters")


@pytest.mark.parametrize(("timeout", "pause"), [(20, 0.25), (0.2, 0.2)])
def test_wait_evaluates_condition_after_a_pause_without_event(timeout: float, pause: float):
    """A condition can become true by time alone."""
    stream = EventStream()
    stream._changed = changed = Waits(lambda: None)
    evaluated = []
    assert stream.wait_for(lambda: len(evaluated) == 2 or bool(evaluated.append(1)), timeout)
    assert changed.waited == pytest.approx([pause] * 2, abs=0.15)
    assert max(changed.waited) <= pause


def test_event_wakes_a_wait_and_nothing_else():
    stream = EventStream()
    stream._changed = changed = Waits(lambda: stream.publish(STARTED, "now"))
    stream.publish(STARTED, "no wait yet")
    assert changed.notified == 0
    assert stream.wait_for(lambda: len(stream.recent()) == 2, PATIENCE)
    assert changed.notified == 1
    stream.publish(STARTED, "the wait is over")
    assert changed.notified == 1


def test_wait_ends_when_no_time_remains(monkeypatch: pytest.MonkeyPatch):
    stream = EventStream()
    stream._changed = changed = Waits(lambda: pytest.fail("a wait without time"))
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: 5.0))
    assert stream.wait_for(lambda: False, 0) is False
    assert changed.waited == []


def test_wait_ends_after_its_timeout():
    stream = EventStream()
    start = time.monotonic()
    assert stream.wait_for(lambda: False, 0.02) is False
    assert time.monotonic() - start >= 0.02
