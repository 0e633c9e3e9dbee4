"""Leases: created, renewed, lost, late."""

import threading

import pytest

from devicemanager.cluster.client import lease_controller
from devicemanager.cluster.client.errors import Conflict, NotFound, Unavailable
from devicemanager.cluster.client.lease_controller import PATH, LeaseController


class Leases:
    """An API that has leases; ``wait`` waits for calls."""

    def __init__(self):
        self.calls = []
        self.errors = []
        self.versions = {}
        self.labels = {}
        self._changed = threading.Condition()

    def attempt(self, method, path, body=None, *, user=None):
        with self._changed:
            self.calls.append((method, path, body, user))
            self._changed.notify_all()
            if self.errors:
                raise self.errors.pop(0)
            name = body["metadata"]["name"] if body else path.rpartition("/")[2]
            if method == "POST" and name in self.versions:
                raise Conflict(409, "AlreadyExists", "", method, path)
            if method == "PUT":
                if name not in self.versions:
                    raise NotFound(404, "NotFound", "", method, path)
                if body["metadata"]["resourceVersion"] != str(self.versions[name]):
                    raise Conflict(409, "Conflict", "", method, path)
            if method != "GET":
                self.versions[name] = self.versions.get(name, 0) + 1
            metadata = {"resourceVersion": str(self.versions[name]), **self.labels}
            return {"metadata": metadata}

    def wait(self, test):
        with self._changed:
            assert self._changed.wait_for(lambda: test(self), 20), self.calls

    @property
    def methods(self):
        return [call[0] for call in self.calls]


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def lane(leases, monkeypatch):
    monkeypatch.setattr(lease_controller, "FIRST_WAIT", 0.01)
    found = LeaseController(leases, duration=0.2)
    yield found
    found.close()


def renewed(count):
    return lambda leases: leases.methods.count("PUT") >= count


def test_no_more_threads_than_leases(leases, lane):
    def threads():
        return {each for each in threading.enumerate() if each.name == "leases"}

    before = threads()
    lane.add("a", "uid-a")
    leases.wait(renewed(3))
    assert len(threads() - before) == 1


def test_a_thread_that_cannot_start(leases, lane, monkeypatch):
    """One that there is renews the leases of both; without any the node cannot have one."""

    def none(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            lane.add("a", "uid-a")
    lane.remove("a")
    lane.add("b", "uid-b")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        lane.add("c", "uid-c")
    leases.wait(lambda leases: {"b", "c"} <= leases.versions.keys())
    assert "a" not in leases.versions


def test_created_at_once_and_renewed_with_what_came_back(leases, lane):
    lane.add("a", "uid-a")
    leases.wait(renewed(2))
    assert leases.methods[:3] == ["POST", "PUT", "PUT"]
    method, path, body, user = leases.calls[0]
    assert (method, path, user) == ("POST", PATH, None)
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}
    ]
    assert body["spec"]["holderIdentity"] == "a"
    assert [call[2]["metadata"].get("resourceVersion") for call in leases.calls[:3]] == [
        None,
        "1",
        "2",
    ]
    assert leases.calls[1][1] == f"{PATH}/a"


def test_a_node_that_comes_later_does_not_wait_for_others(leases):
    lane = LeaseController(leases, duration=4000)
    for number in range(4):
        lane.add(str(number), "uid")
        leases.wait(lambda leases, number=number: str(number) in leases.versions)
    lane.close()


def test_a_lease_of_a_life_before_is_taken_over(leases, lane):
    leases.versions["a"] = 7
    leases.labels = {"labels": {"kept": "yes"}}
    lane.add("a", "uid")
    leases.wait(renewed(1))
    assert leases.methods[:3] == ["POST", "GET", "PUT"]
    assert leases.calls[2][2]["metadata"]["resourceVersion"] == "7"
    assert leases.calls[2][2]["metadata"]["labels"] == {"kept": "yes"}


def test_one_that_somebody_else_wrote_is_read_again(leases, lane):
    lane.add("a", "uid")
    leases.wait(renewed(1))
    leases.versions["a"] += 5
    leases.wait(lambda leases: "GET" in leases.methods)
    before = leases.methods.count("PUT")
    leases.wait(renewed(before + 2))


def test_one_that_somebody_deleted_is_created_again(leases, lane):
    lane.add("a", "uid")
    leases.wait(renewed(1))
    del leases.versions["a"]
    leases.wait(lambda leases: leases.methods.count("POST") == 2)


def test_an_unavailable_server_is_tried_again(leases, lane):
    leases.errors = [Unavailable("down")] * 4
    lane.add("a", "uid")
    leases.wait(renewed(1))
    assert leases.methods[:5] == ["POST"] * 5


def test_an_answer_that_is_none_ends_no_thread(leases, monkeypatch):
    monkeypatch.setattr(lease_controller, "LONGEST_WAIT", 0.01)
    lane = LeaseController(leases, duration=0.2, threads=1)
    leases.errors = [KeyError("metadata")]
    lane.add("a", "uid")
    leases.wait(renewed(1))
    lane.close()


def test_removed_and_silent_nodes_are_not_renewed(leases, lane):
    lane.add("gone", "uid")
    lane.add("silent", "uid")
    lane.add("there", "uid")
    leases.wait(lambda leases: len(leases.versions) == 3)
    lane.remove("gone")
    lane.silence("silent", True)
    lane.remove("unknown")
    lane.silence("unknown", True)
    # What was under way may still come through, however late.
    leases.wait(lambda leases: {call[1] for call in leases.calls[-6:]} == {f"{PATH}/there"})
    lane.silence("silent", False)
    leases.wait(lambda leases: leases.calls[-1][1] == f"{PATH}/silent")


def test_never_two_renewals_of_one_node_at_once(leases, monkeypatch):
    going, most = {}, []
    lock = threading.Lock()
    plain = leases.attempt

    def counted(method, path, body=None, *, user=None):
        name = body["metadata"]["name"]
        with lock:
            going[name] = going.get(name, 0) + 1
            most.append(going[name])
        try:
            return plain(method, path, body, user=user)
        finally:
            with lock:
                going[name] -= 1

    leases.attempt = counted
    lane = LeaseController(leases, duration=0.01)
    for number in range(5):
        lane.add(str(number), "uid")
    leases.wait(renewed(100))
    lane.close()
    assert set(most) == {1}


def test_as_the_node_itself(leases):
    lane = LeaseController(leases, as_nodes=True)
    lane.add("a", "uid")
    leases.wait(lambda leases: leases.calls)
    assert leases.calls[0][3] == "a"
    lane.close()


class Time:
    """What a test says it is."""

    now = 100.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


@pytest.fixture
def time_(monkeypatch):
    found = Time()
    monkeypatch.setattr(lease_controller, "time", found)
    return found


def test_lateness_is_measured_and_said(leases, time_):
    """Renewals that take 3, 12 and 13 seconds, and long after them one that takes 1."""
    said, takes = [], [3.0, 12.0, 13.0]
    lane = LeaseController(leases, duration=0, threads=1, warn=said.append)
    attempt, done = leases.attempt, threading.Event()

    def slow(method, path, body=None, *, user=None):
        if takes:
            time_.now += takes.pop(0)
            return attempt(method, path, body, user=user)
        lane.remove(path.rpartition("/")[2])
        done.set()
        raise NotFound(404, "NotFound", "", method, path)

    leases.attempt = slow
    lane.add("a", "uid")
    assert done.wait(20)
    assert len(said) == 1
    assert said[0].startswith("API server is slow: leases late by 12 s; fewer nodes")
    assert (lane.lag.worst, lane.lag.renewals) == (13.0, 3)
    time_.now += 100
    done.clear()
    takes.append(1.0)
    lane.add("b", "uid")
    assert done.wait(20)
    assert lane.lag.worst == 1.0, "of the last minute"
    lane.close()


def test_the_latest_renewal_comes_first(leases, time_):
    lane = LeaseController(leases, threads=1)
    attempt, go_on = leases.attempt, threading.Event()

    def waiting(method, path, body=None, *, user=None):
        found = attempt(method, path, body, user=user)
        assert go_on.wait(20)
        return found

    leases.attempt = waiting
    lane.add("first", "uid")
    leases.wait(lambda leases: leases.calls)
    for name, due in (("a", 99), ("b", 95), ("c", 97)):
        time_.now = due
        lane.add(name, "uid")
    time_.now = 101
    go_on.set()
    leases.wait(lambda leases: len(leases.calls) == 4)
    assert [call[2]["metadata"]["name"] for call in leases.calls] == ["first", "b", "c", "a"]
    lane.close()
