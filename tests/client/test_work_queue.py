"""Order and priority of work. With threads, without sleeps."""

import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.client.errors import ClientClosing, NotFound
from devicemanager.client.work_queue import PausableQueue, Priority, WorkQueue


@pytest.fixture
def queue():
    found = WorkQueue(1)
    yield found
    found.close()


def occupy(queue, key="occupied"):
    """Occupy a thread; return a function that releases it."""
    running, go = threading.Event(), threading.Event()

    def work():
        running.set()
        assert go.wait(20)

    queue.put(Priority.EVENT, key, work)
    assert running.wait(20)
    return go.set


def test_most_urgent_work_runs_first(queue):
    done = []
    go = occupy(queue)
    for priority in reversed(Priority):
        queue.put(priority, priority.name, lambda priority=priority: done.append(priority))
    go()
    assert queue.drain(20)
    assert done == list(Priority)


def test_key_keeps_order_and_takes_its_highest_priority(queue):
    done = []
    go = occupy(queue)
    queue.put(Priority.POD_STATUS, "other", lambda: done.append("other"))
    queue.put(Priority.EVENT, "pod", lambda: done.append("first"))
    queue.put(Priority.DELETION, "pod", lambda: done.append("second"))
    go()
    assert queue.drain(20)
    assert done == ["first", "second", "other"]


def test_burst_wakes_or_starts_a_thread_per_work():
    """Also if a thread was notified, but does not run yet when the second work is added."""
    queue = WorkQueue(2)
    queue.put(Priority.EVENT, "first", lambda: None)
    assert queue.drain(20)
    deadline = time.monotonic() + 20
    while not queue._idle:
        assert time.monotonic() < deadline
    both = threading.Barrier(2)
    met = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(5)
    try:
        for key in ("a", "b"):
            queue.put(Priority.EVENT, key, lambda: met.append(both.wait(10)))
    finally:
        sys.setswitchinterval(before)
    assert queue.drain(20)
    queue.close()
    assert sorted(met) == [0, 1]


def test_one_key_never_runs_concurrently():
    queue = WorkQueue(4)
    running, counts = {}, []
    lock = threading.Lock()

    def work(key):
        with lock:
            running[key] = running.get(key, 0) + 1
            counts.append(running[key])
        with lock:
            running[key] -= 1

    for number in range(200):
        queue.put(Priority(number % 4), f"{number % 7}", lambda number=number: work(number % 7))
    assert queue.drain(20)
    assert counts == [1] * 200
    queue.close()


@given(st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from("abc")), max_size=30))
def test_all_work_runs_once_in_order_per_key(puts):
    queue = WorkQueue(2)
    done = {key: [] for key in "abc"}
    for number, (priority, key) in enumerate(puts):
        queue.put(priority, key, lambda number=number, key=key: done[key].append(number))
    assert queue.drain(20)
    assert queue.pending == 0
    for key, numbers in done.items():
        assert numbers == [number for number, (_, each) in enumerate(puts) if each == key]
    queue.close()


def test_errors_are_warnings_and_end_no_thread():
    warnings = []
    queue = WorkQueue(1, warn=warnings.append)

    def fail(error):
        def work():
            raise error

        queue.put(Priority.EVENT, "k", work)

    fail(ClientClosing())
    fail(NotFound(404, "NotFound", "no", "GET", "/x"))
    fail(KeyError("k"))
    assert queue.drain(20)
    assert warnings == ["GET /x: 404 NotFound: no", "unexpected KeyError: 'k' (a bug)"]
    queue.close()


def test_drain_times_out(queue):
    go = occupy(queue)
    assert not queue.drain(0.01)
    go()
    assert queue.drain(20)


def test_closed_queue_runs_nothing_new(queue):
    done = []
    go = occupy(queue)
    queue.put(Priority.EVENT, "k", lambda: done.append(1))
    go()
    queue.close()
    queue.put(Priority.EVENT, "k", lambda: done.append(2))
    assert done in ([], [1])
    assert queue.pending == 0


def test_close_drops_waiting_work(queue):
    done = []
    go = occupy(queue)
    queue.put(Priority.EVENT, "k", lambda: done.append(1))
    queue.close(0.0)
    go()
    assert queue.drain(20)
    assert done == []


def test_on_dropped_is_called_for_dropped_work():
    warnings, dropped = [], []
    queue = WorkQueue(1, warn=warnings.append)
    go = occupy(queue)

    def fail():
        raise KeyError("k")

    for number in range(2):
        queue.put(
            Priority.EVENT, "k", fail, on_dropped=lambda number=number: dropped.append(number)
        )
    queue.put(Priority.EVENT, "other", fail, on_dropped=fail)
    queue.close(0.0)
    queue.put(Priority.EVENT, "k", fail, on_dropped=lambda: dropped.append("late"))
    queue.put(Priority.EVENT, "k", fail)
    assert dropped == [0, 1, "late"]
    assert warnings == ["unexpected KeyError: 'k' (a bug)"]
    go()


def test_on_dropped_is_not_called_for_finished_work(queue):
    queue.put(Priority.EVENT, "k", lambda: None, on_dropped=pytest.fail)
    assert queue.drain(20)
    queue.close()


def test_put_fails_only_without_any_thread(monkeypatch):
    """Work that ``put`` did not accept never runs. An existing thread runs accepted work."""
    queue, done = WorkQueue(2), []

    def no_thread(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match=r"^can't start new thread"):
            queue.put(Priority.EVENT, "k", lambda: done.append("rejected"))
    assert queue.pending == 0
    go = occupy(queue)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        queue.put(Priority.EVENT, "k", lambda: done.append("later"))
    go()
    assert queue.drain(20)
    assert done == ["later"]
    queue.close()


def test_stale_line_entry_of_a_running_key_is_skipped():
    queue = WorkQueue(2)
    first, second = occupy(queue, "x"), occupy(queue, "y")
    begun, go, other, done = threading.Event(), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert go.wait(20)
        done.append("slow")

    queue.put(Priority.EVENT, "pod", slow)
    queue.put(Priority.DELETION, "pod", lambda: done.append("urgent"))
    queue.put(Priority.EVENT, "other", other.set)
    first()
    assert begun.wait(20)
    second()
    assert other.wait(20)
    assert done == []
    go.set()
    assert queue.drain(20)
    assert done == ["slow", "urgent"]
    queue.close()


def test_paused_view_holds_back_work_that_has_not_started(queue):
    done, view = [], PausableQueue(queue)
    go = occupy(queue)
    view.put(Priority.EVENT, "a", lambda: done.append("queued"))
    view.pause(True)
    go()
    assert queue.drain(20)
    view.put(Priority.EVENT, "a", lambda: done.append("added"))
    assert queue.drain(20) and done == []
    view.pause(False)
    assert queue.drain(20) and done == ["queued", "added"]


def test_paused_view_keeps_the_order_of_a_key(queue):
    """Also of work that was in the queue before the pause."""
    done, view = [], PausableQueue(queue)
    go = occupy(queue)
    view.put(Priority.EVENT, "a", lambda: done.append("before"))
    view.pause(True)
    view.put(Priority.EVENT, "a", lambda: done.append("during"))
    go()
    assert queue.drain(20) and done == []
    view.pause(False)
    assert queue.drain(20) and done == ["before", "during"]


class ListQueue:
    """Stores work until ``run``. ``before_put`` is called before each put."""

    def __init__(self):
        self.works = []
        self.before_put = lambda: None

    def put(self, priority, key, work):
        self.before_put()
        self.works.append(work)

    def run(self):
        while self.works:
            self.works.pop(0)()


def test_view_that_is_resumed_before_its_work_starts_runs_it_once():
    queue, done = ListQueue(), []
    view = PausableQueue(queue)
    view.put(Priority.EVENT, "a", lambda: done.append("before"))
    view.pause(True)
    view.pause(False)
    queue.run()
    assert done == ["before"]


def test_work_that_is_added_while_a_view_resumes_comes_last():
    queue, done = ListQueue(), []
    view = PausableQueue(queue)
    view.pause(True)
    for number in range(2):
        view.put(Priority.EVENT, "a", lambda number=number: done.append(number))
    other = threading.Thread(
        target=view.put, args=(Priority.EVENT, "a", lambda: done.append("late"))
    )

    def add_late_work():
        queue.before_put = lambda: None
        other.start()
        other.join(0.2)  # it may have to wait until the view has resumed

    # The first held work is already in the queue when the late work is added.
    def at_second_put():
        queue.before_put = add_late_work

    queue.before_put = at_second_put
    view.pause(False)
    other.join(20)
    queue.run()
    assert done == [0, 1, "late"]


def test_view_that_cannot_resume_loses_no_work():
    queue, done = ListQueue(), []
    view = PausableQueue(queue)

    def no_thread():
        raise RuntimeError("can't start new thread")

    view.pause(True)
    for key in "ab":
        view.put(Priority.EVENT, key, lambda key=key: done.append(key))
    queue.before_put = no_thread
    with pytest.raises(RuntimeError):
        view.pause(False)
    queue.before_put = lambda: None
    queue.run()
    assert done == [], "the view is still paused"
    view.pause(False)
    queue.run()
    assert done == ["a", "b"]


def test_view_does_not_keep_work_that_its_queue_rejects():
    queue, done = ListQueue(), []
    view = PausableQueue(queue)

    def no_thread():
        raise RuntimeError("can't start new thread")

    queue.before_put = no_thread
    with pytest.raises(RuntimeError):
        view.put(Priority.EVENT, "a", lambda: done.append("rejected"))
    queue.before_put = lambda: None
    view.put(Priority.EVENT, "a", lambda: done.append("accepted"))
    queue.run()
    assert done == ["accepted"]
