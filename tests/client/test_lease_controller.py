"""Leases: creation, renewal, conflicts, lag."""

import threading

import pytest

from devicemanager.client import lease_controller
from devicemanager.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.client.lease_controller import PATH, LeaseController, LeaseLag


class Leases:
    """An API server with leases. ``wait`` waits for calls."""

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
def controller(leases, monkeypatch):
    monkeypatch.setattr(lease_controller, "FIRST_WAIT", 0.01)
    found = LeaseController(leases, duration=0.2)
    yield found
    found.close()


def renewed(count):
    return lambda leases: leases.methods.count("PUT") >= count


def test_one_lease_uses_one_thread(leases, controller):
    def threads():
        return {each for each in threading.enumerate() if each.name == "leases"}

    before = threads()
    controller.add("a", "uid-a")
    leases.wait(renewed(3))
    assert len(threads() - before) == 1


def test_add_fails_only_without_any_thread(leases, controller, monkeypatch):
    """An existing thread renews the leases of both nodes."""

    def fail(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match=r"^can't start new thread"):
            controller.add("a", "uid-a")
    controller.remove("a")
    controller.add("b", "uid-b")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        controller.add("c", "uid-c")
    leases.wait(lambda leases: {"b", "c"} <= leases.versions.keys())
    assert "a" not in leases.versions


def test_lease_is_created_at_once_then_renewed_without_get(leases, controller):
    controller.add("a", "uid-a")
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


def test_new_lease_does_not_wait_for_the_next_deadline(leases):
    controller = LeaseController(leases, duration=4000)
    for number in range(4):
        controller.add(str(number), "uid")
        leases.wait(lambda leases, number=number: str(number) in leases.versions)
    controller.close()


def test_thread_renews_what_is_due_soon_without_the_watcher(leases, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    controller = LeaseController(leases, duration=4000)
    controller.add("a", "uid")
    controller.add("b", "uid")
    controller._is_watched = True
    monkeypatch.setattr(controller._changed, "wait", lambda seconds=None: pytest.fail("waited"))
    assert [controller._next().node for _ in range(2)] == ["a", "b"]


def test_existing_lease_is_taken_over(leases, controller):
    leases.versions["a"] = 7
    leases.labels = {"labels": {"foreign": "yes"}}
    controller.add("a", "uid")
    leases.wait(renewed(1))
    assert leases.methods[:3] == ["POST", "GET", "PUT"]
    assert leases.calls[2][2]["metadata"]["resourceVersion"] == "7"
    assert leases.calls[2][2]["metadata"]["labels"] == {"foreign": "yes"}


def test_lease_changed_by_another_client_is_read_again(leases, controller):
    controller.add("a", "uid")
    leases.wait(renewed(1))
    leases.versions["a"] += 5
    leases.wait(lambda leases: "GET" in leases.methods)
    before = leases.methods.count("PUT")
    leases.wait(renewed(before + 2))


def test_deleted_lease_is_created_again(leases, controller):
    controller.add("a", "uid")
    leases.wait(renewed(1))
    del leases.versions["a"]
    leases.wait(lambda leases: leases.methods.count("POST") == 2)


def test_unavailable_server_is_retried(leases, controller):
    leases.errors = [Unavailable("down")] * 4
    controller.add("a", "uid")
    leases.wait(renewed(1))
    assert leases.methods[:5] == ["POST"] * 5


def test_failures_back_off_exponentially(leases, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    controller = LeaseController(leases, threads=1)
    again, waits = controller._again, []

    def recorded(lease, due, wait):
        waits.append(wait)
        again(lease, due, 0.001 if wait else 0.0)

    monkeypatch.setattr(controller, "_again", recorded)
    leases.errors = [Unavailable("down")] * 8
    controller.add("a", "uid")
    leases.wait(lambda leases: len(leases.calls) == 9)
    controller.close()
    assert waits[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0]


def test_renewals_are_a_quarter_of_the_duration_and_jitter_apart(leases, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    controller = LeaseController(leases, duration=40000, threads=1)
    again, pauses = controller._again, []

    def recorded(lease, due, wait):
        again(lease, due, wait)
        pauses.append(lease.due - due)

    monkeypatch.setattr(controller, "_again", recorded)
    controller.add("a", "uid")
    leases.wait(lambda leases: leases.calls)
    controller.close()
    assert pauses == [pytest.approx(10400)]


def test_malformed_response_does_not_end_the_thread(leases, monkeypatch):
    monkeypatch.setattr(lease_controller, "LONGEST_WAIT", 0.01)
    controller = LeaseController(leases, duration=0.2, threads=1)
    leases.errors = [KeyError("metadata")]
    controller.add("a", "uid")
    leases.wait(renewed(1))
    controller.close()


def test_removed_and_paused_leases_are_not_renewed(leases, controller):
    controller.add("removed", "uid")
    controller.add("paused", "uid")
    controller.add("active", "uid")
    leases.wait(lambda leases: len(leases.versions) == 3)
    controller.remove("removed")
    controller.pause("paused", True)
    controller.remove("unknown")
    controller.pause("unknown", True)
    # Renewals in flight may still succeed.
    leases.wait(lambda leases: {call[1] for call in leases.calls[-6:]} == {f"{PATH}/active"})
    controller.pause("paused", False)
    leases.wait(lambda leases: leases.calls[-1][1] == f"{PATH}/paused")


def test_one_lease_is_never_renewed_concurrently(leases, monkeypatch):
    running, counts = {}, []
    lock = threading.Lock()
    attempt = leases.attempt

    def counted(method, path, body=None, *, user=None):
        name = body["metadata"]["name"]
        with lock:
            running[name] = running.get(name, 0) + 1
            counts.append(running[name])
        try:
            return attempt(method, path, body, user=user)
        finally:
            with lock:
                running[name] -= 1

    leases.attempt = counted
    controller = LeaseController(leases, duration=0.01)
    for number in range(5):
        controller.add(str(number), "uid")
    leases.wait(renewed(100))
    controller.close()
    assert set(counts) == {1}


def test_as_nodes_impersonates_the_node(leases):
    controller = LeaseController(leases, as_nodes=True)
    controller.add("a", "uid")
    leases.wait(lambda leases: leases.calls)
    assert leases.calls[0][3] == "a"
    controller.close()


@pytest.fixture
def idle(leases, monkeypatch):
    """A controller without threads."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    return LeaseController(leases, duration=4000)


def test_leases_with_the_same_deadline_keep_their_order(idle, time_):
    for name in ("c", "a", "b"):
        idle.add(name, "uid")
    assert [idle._next().node for _ in range(3)] == ["c", "a", "b"]


def test_there_are_at_most_as_many_threads_as_leases(leases, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    controller = LeaseController(leases, threads=2)
    counts = []
    for name in ("a", "a", "b", "c"):
        controller.add(name, "uid")
        counts.append(len(controller._threads))
    assert counts == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("end", "queued"),
    [("nothing", 1), ("pause", 1), ("remove", 0), ("close", 0), ("add", 1)],
)
def test_lease_is_queued_again_unless_it_or_the_controller_ended(idle, end, queued):
    idle.add("a", "uid")
    lease = idle._next()
    match end:
        case "pause":
            idle.pause("a", True)
        case "remove":
            idle.remove("a")
        case "close":
            idle._closed = True
        case "add":
            idle.add("a", "uid-2")
    idle._again(lease, lease.due, 0.0)
    assert len(idle._queue) == queued
    assert all((each is lease) == (end != "add") for _, _, each in idle._queue)


@pytest.mark.parametrize(
    ("paused", "wait", "due", "renewals"),
    [
        (False, 0.0, 90.0 + 1000.0, 1),
        (False, 0.5, 100.5, 0),
        (True, 0.0, 90.0 + 1000.0, 0),
    ],
)
def test_next_attempt_follows_the_deadline_or_the_failure(
    idle, time_, monkeypatch, paused, wait, due, renewals
):
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    idle.add("a", "uid")
    lease = idle._next()
    lease.paused = paused
    idle._again(lease, 90.0, wait)
    assert (lease.due, idle.lag.renewals) == (due, renewals)
    idle._again(lease, -5000.0, 0.0)
    assert lease.due == 100.0, "renewals that were missed are skipped"


def test_lag_of_no_and_of_several_renewals(leases, time_):
    lines = []
    controller = LeaseController(leases, warn=lines.append)
    assert controller.lag == LeaseLag(0, 0.0, 0.0)
    for now, lag in ((100.0, 4.0), (101.0, 10.0), (102.0, 1.0)):
        controller._note(now, lag)
    assert controller.lag == LeaseLag(3, 10.0, 5.0)
    controller._note(161.0, 1.0)
    assert controller.lag.worst == 10.0
    controller._note(161.1, 3.0)
    assert controller.lag.worst == 3.0
    assert lines == []
    controller._note(162.0, 10.1)
    assert lines == [
        "API server is slow or was unavailable: leases are 10 s late; use fewer nodes, a larger "
        "control plane, or --lease-duration 120 with a longer --node-monitor-grace-period of the "
        "controllers"
    ]


@pytest.mark.parametrize(
    ("error", "least", "most", "version"),
    [
        (NotFound(404, "NotFound", "", "PUT", "/x"), 0.1, 0.2, None),
        (Conflict(409, "Conflict", "", "PUT", "/x"), 0.1, 0.2, None),
        (Unavailable("down"), 0.1, 0.2, "1"),
        (Unavailable("down", wait=3.0), 3.0, 3.0, "1"),
        (ApiError(403, "Forbidden", "no", "PUT", "/x"), 7.0, 7.0, "1"),
    ],
)
def test_failed_renewal_waits(leases, error, least, most, version):
    lines = []
    controller = LeaseController(leases, warn=lines.append)
    lease = lease_controller._Lease("a", "uid", 0.0, 0.0)
    assert controller._attempt(lease) == 0.0
    leases.errors = [error]
    assert least <= controller._attempt(lease) <= most
    assert (lease.version, lease.failures) == (version, 1)
    denied = error if type(error) is ApiError else None
    assert lines == ([f"lease of node a: {denied}"] if denied else [])
    assert controller._attempt(lease) == 0.0 and lease.failures == 0


def test_lease_of_a_holder_is_annotated(leases):
    controller = LeaseController(leases, holder="me", duration=41)
    lease = lease_controller._Lease("a", "uid", 0.0, 0.0)
    lease.extra = {"annotations": {"other": "x"}, "labels": {"l": "y"}}
    controller._attempt(lease)
    body = leases.calls[0][2]
    assert body["metadata"] == {
        "name": "a",
        "namespace": "kube-node-lease",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid"}],
        "annotations": {"other": "x", "devicemanager.io/holder": "me"},
        "labels": {"l": "y"},
    }
    assert body["spec"]["leaseDurationSeconds"] == 41


class Time:
    """Time that a test sets."""

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


def test_lag_is_measured_and_reported(leases, time_):
    """Renewals take 3, 12 and 13 seconds; later ones take 1, 0.5 and 0."""
    warnings, takes = [], [3.0, 12.0, 13.0]
    controller = LeaseController(leases, duration=0, threads=1, warn=warnings.append)
    attempt, done = leases.attempt, threading.Event()

    def slow(method, path, body=None, *, user=None):
        if takes:
            time_.now += takes.pop(0)
            return attempt(method, path, body, user=user)
        controller.remove(path.rpartition("/")[2])
        done.set()
        raise NotFound(404, "NotFound", "", method, path)

    leases.attempt = slow
    controller.add("a", "uid")
    assert done.wait(20)
    assert len(warnings) == 1
    assert warnings[0].startswith("API server is slow or was unavailable: leases are 12 s late; ")
    assert (controller.lag.worst, controller.lag.renewals) == (13.0, 3)
    for name, pause, taken, worst in (("b", 100, 1.0, 1.0), ("c", 30, 0.5, 1.0), ("d", 40, 0, 0.5)):
        time_.now += pause
        done.clear()
        takes.append(taken)
        controller.add(name, "uid")
        assert done.wait(20)
        assert controller.lag.worst == worst, "the worst of the last minute"
    controller.close()


def test_lag_includes_failed_attempts(leases, time_, monkeypatch):
    """Attempts take 5 and 7 seconds, and the first one fails."""
    monkeypatch.setattr(lease_controller, "FIRST_WAIT", 0.01)
    warnings, takes = [], [5.0, 7.0]
    controller = LeaseController(leases, duration=0, threads=1, warn=warnings.append)
    attempt, done = leases.attempt, threading.Event()

    def slow(method, path, body=None, *, user=None):
        if takes:
            time_.now += takes.pop(0)
            return attempt(method, path, body, user=user)
        controller.remove("a")
        done.set()
        raise NotFound(404, "NotFound", "", method, path)

    leases.attempt = slow
    leases.errors = [Unavailable("down")]
    controller.add("a", "uid")
    assert done.wait(20)
    assert (controller.lag.worst, controller.lag.renewals) == (12.0, 1)
    assert len(warnings) == 1 and "leases are 12 s late" in warnings[0]
    controller.close()


def test_most_overdue_lease_is_renewed_first(leases, time_):
    controller = LeaseController(leases, threads=1)
    attempt, go_on = leases.attempt, threading.Event()

    def waiting(method, path, body=None, *, user=None):
        found = attempt(method, path, body, user=user)
        assert go_on.wait(20)
        return found

    leases.attempt = waiting
    controller.add("first", "uid")
    leases.wait(lambda leases: leases.calls)
    for name, due in (("a", 99), ("b", 95), ("c", 97)):
        time_.now = due
        controller.add(name, "uid")
    time_.now = 101
    go_on.set()
    leases.wait(lambda leases: len(leases.calls) == 4)
    assert [call[2]["metadata"]["name"] for call in leases.calls] == ["first", "b", "c", "a"]
    controller.close()
