"""Leases of shards: at most one holder at a time, and no shard without a holder for long."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.cluster.shard import GIVE_UP, Shard, ShardLeases, shard_option
from devicemanager.cluster.shared_lease import (
    DURATION,
    RENEWAL,
    SETTLED,
    Membership,
    SharedLease,
)


class Leases:
    """The Leases on the API server."""

    def __init__(self):
        self.objects = {}
        self.version = 0

    def attempt(self, method, path, body=None):
        name = path.rpartition("/")[2] if method != "POST" else body["metadata"]["name"]
        old = self.objects.get(name)
        if method == "POST" and old is not None:
            raise Conflict(409, "AlreadyExists", "", method, path)
        if method != "POST" and old is None:
            raise NotFound(404, "", "", method, path)
        if method == "GET":
            return old
        if (
            old is not None
            and body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]
        ):
            raise Conflict(409, "", "", method, path)
        self.version += 1
        new = {**body, "metadata": {"name": name, "resourceVersion": str(self.version)}}
        new["spec"] = {**body["spec"], "renewTime": str(self.version)}
        self.objects[name] = new
        return new


class Process:
    """One of several processes that share the shards."""

    def __init__(self, leases, name, count, time):
        self.is_cut_off = False
        self.leases = leases
        self.running = set()
        self.warnings = []
        self.shards = ShardLeases(
            self,
            "ns",
            count,
            name,
            on_acquired=self.running.add,
            on_lost=self.running.discard,
            warn=self.warnings.append,
            monotonic=lambda: time[0],
        )

    def attempt(self, method, path, body=None):
        if self.is_cut_off:
            raise Unavailable("cut off")
        return self.leases.attempt(method, path, body)


@pytest.fixture
def world():
    return Leases(), [0.0]


def processes(world, count, shards):
    leases, time = world
    return [Process(leases, f"p{number}", shards, time) for number in range(count)]


def steps(world, several, seconds):
    for _ in range(seconds):
        for each in several:
            each.shards.expire()
            each.shards.step()
        world[1][0] += 1


START = int(SETTLED) + 1
"""Steps until a process takes its first shards."""


def test_one_process_acquires_all_shards(world):
    (only,) = processes(world, 1, 3)
    steps(world, [only], START - 1)
    assert only.running == set()
    steps(world, [only], 1)
    assert only.running == {0, 1, 2}
    assert only.shards.held == {0, 1, 2}


def test_leases_are_renewed_on_time(world):
    several = processes(world, 2, 1)
    steps(world, several, 60)
    assert [each.running for each in several] == [{0}, set()]
    # The lease of the shard, and that of its holder. The other process has none.
    assert world[0].version == pytest.approx(2 * 60 / RENEWAL, abs=3)


def test_processes_that_start_together_share_equally(world):
    several = processes(world, 3, 3)
    for _ in range(20):
        steps(world, several, 1)
        assert max(len(each.running) for each in several) <= 1
    assert {number for each in several for number in each.running} == {0, 1, 2}


def test_process_that_was_first_gives_shards_back(world):
    first, *others = processes(world, 3, 3)
    steps(world, [first], START)
    assert first.running == {0, 1, 2}
    steps(world, [first, *others], START + 3)
    assert [len(each.running) for each in (first, *others)] == [1, 1, 1]
    assert "shard 2 given back: another process has fewer shards" in first.warnings
    others[0].shards.stop()
    steps(world, [first, others[1]], 3)
    assert sorted(len(each.running) for each in (first, others[1])) == [1, 2]


def test_process_more_than_shards_waits_for_a_place(world):
    several = processes(world, 3, 2)
    steps(world, several, 10)
    assert [len(each.running) for each in several] == [1, 1, 0]
    several[0].shards.stop()
    steps(world, several[1:], START + 1)
    assert [len(each.running) for each in several] == [0, 1, 1]


def test_shard_of_a_dead_process_is_taken_over(world):
    first, second = processes(world, 2, 1)
    steps(world, [first, second], 7)
    assert first.running == {0}
    steps(world, [second], DURATION + START + 3)
    assert second.running == {0}


def test_process_without_renewal_stops_before_another_starts(world):
    first, second = processes(world, 2, 1)
    steps(world, [first, second], START)
    assert first.running == {0}
    first.is_cut_off = True
    for _ in range(40):
        steps(world, [first, second], 1)
        assert not (first.running and second.running)
    assert second.running == {0}
    assert first.warnings


def test_hanging_request_does_not_keep_a_shard(world):
    first, second = processes(world, 2, 1)
    steps(world, [first], START)
    assert first.running == {0}
    for _ in range(int(DURATION) + START + 3):
        first.shards.expire()  # the thread of ``step`` hangs
        steps(world, [second], 1)
        assert not (first.running and second.running)
    assert second.running == {0}


def test_deleted_lease_is_acquired_again(world):
    (only,) = processes(world, 1, 1)
    steps(world, [only], START)
    world[0].objects.clear()
    steps(world, [only], 30)
    assert only.running == {0}


def test_shard_is_released_if_its_callback_raises(world):
    first, second = processes(world, 2, 1)
    start = first.running.add

    def fail(number):
        raise RuntimeError("can't start new thread")

    first.shards._on_acquired = fail
    steps(world, [first], START - 1)
    first.shards.step()
    assert first.shards.held == frozenset()
    assert world[0].objects["devicemanager-shard-0"]["spec"]["holderIdentity"] == ""
    assert first.warnings == ["shard 0 released: can't start new thread"]
    first.shards._on_acquired = start
    steps(world, [first, second], 1)
    assert first.running == {0}


def test_malformed_response_does_not_end_the_threads(world, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.0)
    (only,) = processes(world, 1, 1)
    attempt, begun = only.leases.attempt, threading.Event()
    malformed = iter([{"kind": "Status"}])
    monkeypatch.setattr("devicemanager.cluster.shared_lease.SETTLED", 0.0)
    only.leases.attempt = lambda *request: next(malformed, None) or attempt(*request)
    only.shards._on_acquired = lambda number: begun.set()
    only.shards.start()
    assert begun.wait(20)
    only.shards.stop()
    assert only.warnings == ["shards: unexpected KeyError: 'metadata'"]


def test_stop_works_if_a_thread_could_not_start(world, monkeypatch):
    (only,) = processes(world, 1, 1)
    start = threading.Thread.start

    def one(self):
        if self.name == "shards expire":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", one)
    with pytest.raises(RuntimeError, match=r"^can't start new thread"):
        only.shards.start()
    only.shards.stop()


MOVES = st.lists(
    st.tuples(st.sampled_from(["cut", "back", "wait", "hang"]), st.integers(0, 2)), max_size=25
)


@given(MOVES)
def test_no_shard_ever_has_two_holders(moves):
    world = Leases(), [0.0]
    several = processes(world, 3, 2)
    hanging = set()
    for move, number in moves:
        several[number].is_cut_off = move == "cut"
        (hanging.add if move == "hang" else hanging.discard)(number)
        for _ in range(4):
            for index, each in enumerate(several):
                each.shards.expire()
                if index not in hanging:
                    each.shards.step()
                running = [shard for each in several for shard in each.running]
                assert len(running) == len(set(running))
            world[1][0] += 1
    for each in several:
        each.is_cut_off = False
    steps(world, several, int(DURATION + GIVE_UP) + START)
    assert sorted(shard for each in several for shard in each.running) == [0, 1]


def test_shard_option_parses_k_of_n():
    shard = shard_option("1/3")
    assert [index for index in range(7) if shard.has(index)] == [1, 4]
    assert shard == Shard(1, 3)
    for text in ("", "1", "3/3", "-1/3", "a/b", "1/0", "00000/1"):
        with pytest.raises(ValueError, match=r"^invalid shard .*: expected K/N"):
            shard_option(text)


def test_released_lease_has_no_holder(world):
    (only,) = processes(world, 1, 1)
    lease = SharedLease(only, "/leases", "a", "p0", lambda: 0.0)
    lease.write()
    assert (lease.holder, lease.renewed) == ("p0", 0.0)
    lease.write(holder="")
    assert lease.holder == "" and lease.is_free()
    lease.read()
    assert lease.holder == "" and lease.is_free()


def shared(leases, name, identity, time):
    return SharedLease(leases, "/leases", name, identity, lambda: time[0])


def test_lease_is_due_and_free_by_the_clock_of_its_reader(world):
    leases, time = world
    own, other = (shared(leases, "a", identity, time) for identity in ("p0", "p1"))
    assert own.is_free() and own.is_due() and own.holder == ""
    own.read()
    own.write()
    spec = leases.objects["a"]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("p0", 15)
    time[0] = 4.9
    assert not own.is_due()
    time[0] = 5.0
    assert own.is_due()
    other.read()
    time[0] = 19.9
    other.read()
    assert other.holder == "p0" and not other.is_free()
    time[0] = 20.0
    assert other.is_free()
    other.write()
    assert other.holder == "p1"
    with pytest.raises(Conflict):
        own.write()
    own.read()
    assert own.holder == "p1" and not own.is_free()
    time[0] = 35.0
    assert own.is_free()


def test_lease_without_an_object_is_created(world):
    leases, time = world
    lease = shared(leases, "a", "p0", time)
    lease.write()
    lease.write()
    leases.objects.clear()
    with pytest.raises(NotFound):
        lease.write()
    lease.forget()
    lease.write()
    leases.objects.clear()
    lease.read()
    assert lease.holder == "" and lease.is_free()
    lease.write()
    assert lease.holder == "p0"


def test_write_counts_from_before_its_request(world):
    leases, time = world

    class Slow:
        def attempt(self, *request):
            time[0] += 3.0
            return leases.attempt(*request)

    lease = shared(Slow(), "a", "p0", time)
    lease.write()
    assert lease.renewed == 0.0 and time[0] == 3.0


def members(world, count, names):
    leases, time = world
    return [
        Membership([shared(leases, str(n), name, time) for n in range(count)], lambda: time[0])
        for name in names
    ]


def holders(world):
    return {name: each["spec"]["holderIdentity"] for name, each in world[0].objects.items()}


def test_each_member_holds_one_lease(world):
    first, second, third = members(world, 2, ["p0", "p1", "p2"])
    assert first.step() == 1 and not first.is_settled
    assert second.step() == 2 and third.step() == 2
    assert holders(world) == {"0": "p0", "1": "p1"}
    world[1][0] = SETTLED - 0.1
    assert not first.is_settled
    world[1][0] = SETTLED
    assert first.is_settled and second.is_settled and not third.is_settled
    first.leave()
    first.leave()
    assert not first.is_settled and holders(world) == {"0": "", "1": "p1"}
    assert third.step() == 2 and holders(world) == {"0": "p2", "1": "p1"}
    assert not third.is_settled, "it has been a member for no time"


def test_member_renews_its_lease_when_it_is_due(world):
    leases, time = world
    (only,) = members(world, 1, ["p0"])
    only.step()
    version = leases.version
    time[0] = RENEWAL - 0.1
    assert only.step() == 1 and leases.version == version
    time[0] = RENEWAL
    assert only.step() == 1 and leases.version == version + 1


def test_member_that_lost_its_lease_takes_a_free_one(world):
    leases, time = world
    (only,) = members(world, 2, ["p0"])
    only.step()
    taken = shared(leases, "0", "p1", time)
    taken.read()
    taken.write()
    time[0] = RENEWAL
    assert only.step() == 0 and not only.is_settled
    assert only.step() == 2 and holders(world) == {"0": "p1", "1": "p0"}


def test_member_that_was_slower_takes_the_next_lease(world):
    first, second = members(world, 2, ["p0", "p1"])
    first._leases[0].read()
    first._leases[0].read = lambda: None
    second.step()
    assert first.step() == 1 and holders(world) == {"0": "p1", "1": "p0"}


@pytest.mark.parametrize("error", [Unavailable("down"), ApiError(403, "Forbidden", "", "PUT", "/")])
def test_lease_that_cannot_be_released_expires(world, monkeypatch, error):
    leases, _ = world
    (only,) = members(world, 1, ["p0"])
    only.step()

    def fail(*request):
        raise error

    monkeypatch.setattr(leases, "attempt", fail)
    only.leave()
    assert holders(world) == {"0": "p0"} and not only.is_settled


@pytest.mark.parametrize("seconds", [30, None])
def test_lease_of_another_process_is_valid_for_its_own_duration(world, seconds):
    """Another process can use another duration; without one it is 15 seconds."""
    leases, time = world
    spec = {"holderIdentity": "another", "leaseDurationSeconds": seconds}
    leases.objects["devicemanager-shard-0"] = {"metadata": {"resourceVersion": "0"}, "spec": spec}
    (only,) = processes(world, 1, 1)
    only.shards.step()
    time[0] = SETTLED
    only.shards.step()
    free_at = seconds or 15
    time[0] = free_at - 0.1
    only.shards.step()
    assert only.running == set()
    time[0] = free_at
    only.shards.step()
    assert only.running == {0}
