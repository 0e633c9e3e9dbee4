"""The clocks and their timers."""

from __future__ import annotations

import threading

import pytest

from devicemanager.io.clock import ManualClock, SystemClock

PATIENCE = 20.0


def test_manual_clock_advances_only_forward():
    clock = ManualClock(10.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (12.5, 12.5)
    with pytest.raises(ValueError, match=r"^invalid number of seconds -1"):
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


def test_earlier_timer_wakes_the_thread(monkeypatch):
    clock = SystemClock()
    waits, fired = threading.Event(), threading.Event()
    wait = clock._changed.wait

    def waiting(seconds=None):
        waits.set()  # with the lock, so that no timer can be added before the wait
        return wait(seconds)

    monkeypatch.setattr(clock._changed, "wait", waiting)
    cancel = clock.call_at(clock.monotonic() + 3600, waits.clear)
    assert waits.wait(PATIENCE)
    clock.call_at(clock.monotonic(), fired.set)
    assert fired.wait(PATIENCE)
    cancel()


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


def test_manual_clock_reaches_the_end_of_a_step_without_and_after_timers():
    clock = ManualClock()
    assert (clock.monotonic(), clock.time()) == (0.0, 0.0)
    clock.call_at(1.0, lambda: None)
    clock.advance(0.5)
    assert clock.monotonic() == 0.5
    clock.advance(2.0)
    assert clock.monotonic() == 2.5


def test_manual_clock_calls_a_timer_that_is_due_now_or_earlier():
    clock = ManualClock(10.0)
    called = []
    clock.call_at(10.0, lambda: called.append(clock.monotonic()))
    clock.call_at(3.0, lambda: called.append(clock.monotonic()))
    clock.advance(0.0)
    assert called == [10.0, 10.0]
    assert clock.monotonic() == 10.0


def test_manual_clock_calls_timers_of_one_time_in_the_order_of_their_setting():
    clock = ManualClock()
    called = []
    for number in range(5):
        clock.call_at(1.0, lambda number=number: called.append(number))
    clock.advance(1.0)
    assert called == [0, 1, 2, 3, 4]


def test_cancelled_manual_timer_leaves_the_order_of_the_others():
    clock = ManualClock()
    called = []
    cancels = [
        clock.call_at(when, lambda when=when: called.append(when))
        for when in (1.0, 5.0, 2.0, 6.0, 7.0, 3.0, 4.0)
    ]
    cancels[0]()
    clock.advance(10.0)
    assert called == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_system_clock_calls_an_earlier_timer_that_is_set_later():
    clock = SystemClock()
    fired = threading.Event()
    never = clock.call_at(clock.monotonic() + 3600, fired.clear)
    clock.call_at(clock.monotonic() + 0.001, fired.set)
    assert fired.wait(PATIENCE)
    never()


def test_cancelled_system_timer_leaves_the_order_of_the_others():
    clock = SystemClock()
    called, last = [], threading.Event()
    start = clock.monotonic() + 0.05
    cancels = [
        clock.call_at(start + when / 1000, lambda when=when: called.append(when))
        for when in (1, 5, 2, 6, 7, 3, 4)
    ]
    cancels[0]()
    clock.call_at(start + 0.01, last.set)
    assert last.wait(PATIENCE)
    assert called == [2, 3, 4, 5, 6, 7]
