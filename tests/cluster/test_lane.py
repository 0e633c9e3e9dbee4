"""Order and urgency of what is put into a lane. Threads, but no sleeps."""

import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.cluster.client.errors import ClientClosing, NotFound
from devicemanager.cluster.client.protocol import Priority
from devicemanager.cluster.client.work_queue import WorkQueue


@pytest.fixture
def lane():
    found = WorkQueue(1)
    yield found
    found.close()


def held(lane, key="held"):
    """Occupy the one thread; returns what lets it go."""
    running, go = threading.Event(), threading.Event()

    def work():
        running.set()
        assert go.wait(20)

    lane.put(Priority.EVENT, key, work)
    assert running.wait(20)
    return go.set


def test_the_most_urgent_first(lane):
    done = []
    go = held(lane)
    for priority in reversed(Priority):
        lane.put(priority, priority.name, lambda priority=priority: done.append(priority))
    go()
    assert lane.drain(20)
    assert done == list(Priority)


def test_one_key_keeps_its_order_and_is_as_urgent_as_its_most_urgent(lane):
    done = []
    go = held(lane)
    lane.put(Priority.POD_STATUS, "other", lambda: done.append("other"))
    lane.put(Priority.EVENT, "pod", lambda: done.append("first"))
    lane.put(Priority.DELETION, "pod", lambda: done.append("second"))
    go()
    assert lane.drain(20)
    assert done == ["first", "second", "other"]


def test_a_burst_wakes_or_starts_a_thread_for_each():
    """Also where one thread waits, and has not come to run yet when the second work comes."""
    lane = WorkQueue(2)
    lane.put(Priority.EVENT, "first", lambda: None)
    assert lane.drain(20)
    until_idle = time.monotonic() + 20
    while not lane._idle:
        assert time.monotonic() < until_idle
    both = threading.Barrier(2)
    met = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(5)
    try:
        for key in ("a", "b"):
            lane.put(Priority.EVENT, key, lambda: met.append(both.wait(10)))
    finally:
        sys.setswitchinterval(before)
    assert lane.drain(20)
    lane.close()
    assert sorted(met) == [0, 1]


def test_one_key_never_runs_twice_at_once():
    lane = WorkQueue(4)
    counts, together = {}, []
    lock = threading.Lock()

    def work(key):
        with lock:
            counts[key] = counts.get(key, 0) + 1
            together.append(counts[key])
        with lock:
            counts[key] -= 1

    for number in range(200):
        lane.put(Priority(number % 4), f"{number % 7}", lambda number=number: work(number % 7))
    assert lane.drain(20)
    assert together == [1] * 200
    lane.close()


@given(st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from("abc")), max_size=30))
def test_everything_is_done_once_and_in_order_of_its_key(puts):
    lane = WorkQueue(2)
    done = {key: [] for key in "abc"}
    for number, (priority, key) in enumerate(puts):
        lane.put(priority, key, lambda number=number, key=key: done[key].append(number))
    assert lane.drain(20)
    assert lane.load == 0
    for key, numbers in done.items():
        assert numbers == [number for number, (_, each) in enumerate(puts) if each == key]
    lane.close()


def test_errors_are_told_and_end_nothing():
    said = []
    lane = WorkQueue(1, warn=said.append)

    def fail(error):
        def work():
            raise error

        lane.put(Priority.EVENT, "k", work)

    fail(ClientClosing())
    fail(NotFound(404, "NotFound", "no", "GET", "/x"))
    fail(KeyError("k"))
    assert lane.drain(20)
    assert said == ["GET /x: 404 NotFound: no", "unexpected KeyError: 'k' (a bug)"]
    lane.close()


def test_a_drain_that_takes_too_long(lane):
    go = held(lane)
    assert not lane.drain(0.01)
    go()
    assert lane.drain(20)


def test_closed_means_nothing_more(lane):
    done = []
    go = held(lane)
    lane.put(Priority.EVENT, "k", lambda: done.append(1))
    go()
    lane.close()
    lane.put(Priority.EVENT, "k", lambda: done.append(2))
    assert done in ([], [1])
    assert lane.load == 0


def test_what_waits_when_it_is_closed_is_dropped(lane):
    done = []
    go = held(lane)
    lane.put(Priority.EVENT, "k", lambda: done.append(1))
    lane.close(0.0)
    go()
    assert lane.drain(20)
    assert done == []


def test_who_waits_for_work_is_told_that_it_is_dropped():
    said, dropped = [], []
    lane = WorkQueue(1, warn=said.append)
    go = held(lane)

    def wrong():
        raise KeyError("k")

    for number in range(2):
        lane.put(Priority.EVENT, "k", wrong, dropped=lambda number=number: dropped.append(number))
    lane.put(Priority.EVENT, "other", wrong, dropped=wrong)
    lane.close(0.0)
    lane.put(Priority.EVENT, "k", wrong, dropped=lambda: dropped.append("late"))
    lane.put(Priority.EVENT, "k", wrong)
    assert dropped == [0, 1, "late"]
    assert said == ["unexpected KeyError: 'k' (a bug)"]
    go()


def test_work_that_is_done_is_not_dropped(lane):
    lane.put(Priority.EVENT, "k", lambda: None, dropped=lambda: pytest.fail("it was done"))
    assert lane.drain(20)
    lane.close()


def test_a_lane_that_no_thread_can_be_started_for(monkeypatch):
    """What is rejected is not done later either; what a thread is there for is."""
    lane, done = WorkQueue(2), []

    def none(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            lane.put(Priority.EVENT, "k", lambda: done.append("rejected"))
    assert lane.load == 0
    go = held(lane)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        lane.put(Priority.EVENT, "k", lambda: done.append("later"))
    go()
    assert lane.drain(20)
    assert done == ["later"]
    lane.close()


def test_a_key_that_runs_is_skipped_where_it_still_stands_in_line():
    lane = WorkQueue(2)
    first, second = held(lane, "x"), held(lane, "y")
    begun, go, other, done = threading.Event(), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert go.wait(20)
        done.append("slow")

    lane.put(Priority.EVENT, "pod", slow)
    lane.put(Priority.DELETION, "pod", lambda: done.append("urgent"))
    lane.put(Priority.EVENT, "other", other.set)
    first()
    assert begun.wait(20)
    second()
    assert other.wait(20)
    assert done == []
    go.set()
    assert lane.drain(20)
    assert done == ["slow", "urgent"]
    lane.close()
