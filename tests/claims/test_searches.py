"""Searches for devices run without the lock of the manager, one at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from devicemanager.claims import snapshot
from devicemanager.claims.errors import ClaimsError, DoesNotFit, TryAgain
from devicemanager.claims.turns import Turns
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from tests.claims.documents import claim, device_class, pool, read
from tests.claims.test_manager import MAIN, Node, pod

DEADLINE = 30


class Search:
    """Replaces the search: calls an action during each search, and counts the searches."""

    def __init__(self, monkeypatch, *actions):
        self._solve = snapshot.solve
        self._actions = list(actions)
        self.count = 0
        monkeypatch.setattr(snapshot, "solve", self)

    def __call__(self, *args):
        self.count += 1
        found = self._solve(*args)
        if self._actions:
            self._actions.pop(0)()
        return found


class Held:
    """An action that lasts until the test ends it."""

    def __init__(self):
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self):
        self.began.set()
        assert self.may_end.wait(DEADLINE)


@contextmanager
def searching(monkeypatch, node, *claims):
    """A pod's admission, held in its search while the body runs."""
    held = Held()
    Search(monkeypatch, held)
    with ThreadPoolExecutor(1) as executor:
        admission = executor.submit(node.admit, "searching", *claims)
        try:
            assert held.began.wait(DEADLINE)
            yield admission
        finally:
            held.may_end.set()
        admission.result(DEADLINE)


def in_time(call, *args):
    """Return the result of a call that must not wait for the search."""
    executor = ThreadPoolExecutor(1)
    try:
        return executor.submit(call, *args).result(DEADLINE)
    finally:
        executor.shutdown(wait=False)


def without_claims(name):
    return Pod(pod(name).uid, name, "default", pod(name).containers)


def test_nothing_but_searches_waits_for_a_search(monkeypatch):
    node = Node()
    node.admit("user", "x")
    user = pod("user", "x")
    with searching(monkeypatch, node, "y"):
        manager = node.manager
        assert [view.phase for view in in_time(manager.view)] == ["Pending", "Reserved", "Pending"]
        assert in_time(manager.dynamic_resources, user, MAIN)
        assert in_time(manager.health, user, MAIN)
        assert in_time(manager.devices, user, MAIN) == {"x": ("p/a",)}
        in_time(manager.submit, read(claim("z")))
        # A claim that is already allocated needs no search.
        in_time(node.admit, "second", "x")
        in_time(node.leave, "user", "second")
        in_time(manager.allocate)
        assert node.devices("x") == []


class NoLock:
    def __enter__(self):
        raise AssertionError("takes the lock of all claims")

    def __exit__(self, *_):
        pass


def test_a_pod_without_claims_takes_no_lock_and_writes_nothing():
    node = Node()
    node.admit("p", "x")
    node.manager._mark_unwritten()  # a change that another thread is about to write
    writes = node.file.writes
    node.manager._lock = NoLock()
    plain = without_claims("plain")
    node.manager.admit(plain)
    node.manager.admitted(plain.uid)
    node.manager.prepare(plain)
    node.manager.remove_pods(plain.uid)
    node.manager.flush()
    assert node.manager.pods() == {"p"}
    assert node.file.writes == writes


def test_a_pod_with_claims_still_writes_its_end():
    node = Node()
    node.admit("p", "x")
    writes = node.file.writes
    node.leave("p")
    assert node.file.writes == writes + 1
    node.manager.flush()
    assert node.file.writes == writes + 1


def test_a_search_is_repeated_if_its_snapshot_is_outdated(monkeypatch):
    node = Node()
    node.admit("first", "x")
    search = Search(monkeypatch, lambda: node.leave("first"))
    node.admit("second", "y")
    assert search.count == 2
    assert node.devices("y") == ["a"]


@pytest.mark.parametrize("kind", ["pool", "class", "claim"])
def test_changes_of_objects_repeat_a_search(kind, monkeypatch):
    node = Node()

    def change():
        if kind == "pool":
            node.manager.publish(read(pool(devices=[{"name": "other"}])))
        elif kind == "class":
            node.manager.define(read(device_class(constraints="device.model == 'b200'")))
        else:
            node.manager.submit(read(claim("x", {"deviceClass": "gpu", "requests": {"count": 2}})))

    search = Search(monkeypatch, change)
    if kind == "class":
        with pytest.raises(DoesNotFit):
            node.manager.allocate("default/x")
    else:
        node.manager.allocate("default/x")
        assert node.devices("x") == {"pool": ["other"], "claim": ["a", "b"]}[kind]
    assert search.count == 2


def test_repeating_ends_with_the_last_result(monkeypatch):
    node = Node()
    changes = [lambda n=n: node.manager.publish(read(pool(f"other{n}"))) for n in range(9)]
    search = Search(monkeypatch, *changes)
    node.admit("p", "x")
    assert search.count == 4
    assert len(node.devices("x")) == 1
    node.manager._allocated.allocator.ledger.self_check()


def test_a_rejection_is_repeated_as_well(monkeypatch):
    node = Node()
    node.admit("first", "both")
    search = Search(monkeypatch, lambda: node.leave("first"))
    node.admit("second", "x")
    assert (search.count, node.devices("x")) == (2, ["a"])


def test_a_claim_that_disappears_during_its_search_is_not_allocated(monkeypatch):
    node = Node()
    taken = node.manager.claim("default/x").claim
    Search(monkeypatch, lambda: node.manager.withdraw(taken))
    with pytest.raises(ClaimsError, match='"default/x" does not exist'):
        node.manager.allocate("default/x")


def test_a_claim_that_changes_during_every_search_must_be_tried_again(monkeypatch):
    node = Node()

    def change(count):
        requests = {"deviceClass": "gpu", "requests": {"count": count}}
        node.manager.submit(read(claim("x", requests)))

    Search(monkeypatch, *[lambda n=n: change(n) for n in (2, 1, 2, 1)])
    with pytest.raises(TryAgain, match="changed during the search"):
        node.manager.allocate("default/x")
    assert node.devices("x") == []


def test_a_last_result_that_the_ledger_contradicts_must_be_tried_again(monkeypatch):
    node = Node()
    node.admit("p", "both")
    stored = node.file.data
    node.leave("p")
    changes = [lambda n=n: node.manager.publish(read(pool(f"q{n}"))) for n in range(3)]

    def restart():
        node.file.data = stored
        node.manager.load(node.file)

    Search(monkeypatch, *changes, restart)
    with pytest.raises(TryAgain, match="already allocated"):
        node.manager.allocate("default/x")
    assert node.devices("both") == ["a", "b"]


def test_a_restart_during_a_search_repeats_it(monkeypatch):
    node = Node()
    node.admit("p", "x")
    search = Search(monkeypatch, lambda: node.manager.load(node.file))
    node.admit("q", "y")
    assert search.count == 2
    assert (node.devices("x"), node.devices("y")) == (["a"], ["b"])


def test_a_stop_during_a_search_leaves_nothing_behind(monkeypatch):
    node = Node()
    Search(monkeypatch, node.manager.close)
    with pytest.raises(Rejected, match="the kubelet is stopped"):
        node.admit("p", "x")
    assert node.devices("x") == []


def test_one_search_runs_at_a_time_in_the_order_of_the_calls(monkeypatch):
    turns, order = Turns(), []
    first, others = Held(), []

    def wait(number):
        with turns.turn():
            order.append(number)
            if not number:
                first()

    for number in range(5):
        others.append(threading.Thread(target=wait, args=(number,), daemon=True))
        others[-1].start()
        assert first.began.wait(DEADLINE)
        while len(turns._queue) <= number:
            threading.Event().wait(0.001)
    assert order == [0]
    first.may_end.set()
    for each in others:
        each.join(DEADLINE)
    assert order == [0, 1, 2, 3, 4]


def test_an_error_ends_a_turn():
    turns = Turns()
    with pytest.raises(ValueError, match="no"), turns.turn():
        raise ValueError("no")
    with turns.turn():
        pass


def test_searches_of_two_pods_get_different_devices(monkeypatch):
    node = Node()
    with ThreadPoolExecutor(1) as executor:
        with searching(monkeypatch, node, "x"):
            other = executor.submit(node.admit, "other", "y")
            assert not other.done()
            assert node.devices("y") == []
        other.result(DEADLINE)
    assert (node.devices("x"), node.devices("y")) == (["a"], ["b"])
