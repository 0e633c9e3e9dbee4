"""The event stream and the clocks."""

from __future__ import annotations

import threading

import pytest

from devicemanager.events.stream import Event, EventKind, EventStream
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


def test_failing_callback_does_not_affect_others(caplog):
    stream = EventStream()
    seen = []

    def fail(event: Event) -> None:
        raise ZeroDivisionError

    stream.subscribe(fail)
    stream.subscribe(seen.append)
    stream.publish(STARTED, "a")
    assert len(seen) == 1
    assert "an event callback failed on started: a" in caplog.text


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


def test_manual_clock_advances_only_forward():
    clock = ManualClock(10.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (12.5, 12.5)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
    assert clock.monotonic() == 12.5


def test_manual_clock_calls_timers_in_order_at_their_times():
    clock = ManualClock(10.0)
    called: list[tuple[str, float]] = []

    def timer(name, when):
        return clock.call_at(when, lambda: called.append((name, clock.monotonic())))

    timer("second", 12.0)
    cancel = timer("never", 11.5)
    timer("first", 11.0)
    clock.call_at(11.0, lambda: timer("inner", 12.5))
    cancel()
    clock.advance(0.9)
    assert called == []
    clock.advance(1.6)
    assert called == [("first", 11.0), ("second", 12.0), ("inner", 12.5)]
    assert clock.monotonic() == 12.5
    cancel()
    clock.advance(10.0)
    assert len(called) == 3


def test_system_clock_fires_and_cancels_timers():
    clock = SystemClock()
    before = set(threading.enumerate())
    fired = threading.Event()
    cancel = clock.call_at(clock.monotonic() + 0.01, fired.set)
    never = clock.call_at(float("inf"), fired.clear)
    assert fired.wait(PATIENCE)
    cancel()
    never()
    assert fired.is_set()
    assert set(threading.enumerate()) <= before


def test_timers_of_system_clock_share_one_thread(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failures.append(args.exc_value))
    others = set(threading.enumerate())  # includes timers of kubelets that other tests left open
    clock = SystemClock()
    called, both = [], threading.Event()

    def fails():
        raise SystemExit("no")

    def second():
        called.append(threading.current_thread())
        both.set()

    now = clock.monotonic()
    last = [clock.call_at(now + 3600 + each, both.clear) for each in range(20)]
    clock.call_at(now + 0.002, second)
    clock.call_at(now + 0.001, lambda: called.append(threading.current_thread()))
    clock.call_at(now, fails)
    assert both.wait(PATIENCE)
    assert [str(error) for error in failures] == ["no"]
    (thread,) = set(called)
    assert thread.name == "timer" and thread.daemon
    timers = [each for each in threading.enumerate() if each.name == "timer"]
    assert [each for each in timers if each not in others] == [thread]
    for cancel in last:
        cancel()
    assert not thread.is_alive()
    both.clear()
    clock.call_at(clock.monotonic(), both.set)
    assert both.wait(PATIENCE), "no new thread for a timer after the last one ended"


def test_cancel_waits_only_for_timers_own_callback():
    clock = SystemClock()
    entered, leave, inside = threading.Event(), threading.Event(), threading.Event()
    ended = []

    def slow():
        cancel()  # must not wait, because the callback itself calls it
        entered.set()
        leave.wait(PATIENCE)
        ended.append(True)

    cancel = clock.call_at(clock.monotonic(), slow)
    other = clock.call_at(clock.monotonic() + 3600, inside.set)
    assert entered.wait(PATIENCE)
    other()
    assert not ended
    leave.set()
    cancel()
    assert ended


def test_timer_without_thread_raises_and_is_removed(monkeypatch):
    clock = SystemClock()
    ended = threading.Event()

    def none(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError):
            clock.call_at(clock.monotonic(), ended.set)
    fired = threading.Event()
    clock.call_at(clock.monotonic() + 0.001, fired.set)
    assert fired.wait(PATIENCE)
    assert not ended.is_set()


def test_system_clock_readings():
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.time() > 1_600_000_000
