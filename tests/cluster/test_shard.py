"""Who has which shard: never two at once, and none for long without anybody."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.cluster.client.errors import Conflict, NotFound, Unavailable
from devicemanager.cluster.shard import DURATION, GIVE_UP, RENEWAL, Shard, ShardClaims, shard_option


class Leases:
    """The Leases of all processes, and whether one of them can be reached."""

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
    """One of several that claim."""

    def __init__(self, leases, name, shards, time):
        self.is_cut_off = False
        self.leases = leases
        self.running = set()
        self.said = []
        self.claims = ShardClaims(
            self,
            "ns",
            shards,
            name,
            taken=self.running.add,
            lost=self.running.discard,
            warn=self.said.append,
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


def steps(world, them, seconds):
    for _ in range(seconds):
        for each in them:
            each.claims.expire()
            each.claims.step()
        world[1][0] += 1


def test_one_process_takes_all(world):
    (only,) = processes(world, 1, 3)
    steps(world, [only], 1)
    assert only.running == {0, 1, 2}
    assert only.claims.ours == {0, 1, 2}


def test_the_claims_are_kept_by_renewing(world):
    them = processes(world, 2, 1)
    steps(world, them, 60)
    assert [each.running for each in them] == [{0}, set()]
    assert world[0].version == pytest.approx(60 / RENEWAL, abs=2)


def test_several_share(world):
    them = processes(world, 3, 3)
    for each in them:  # the first one comes alone
        steps(world, [each], 1)
    assert them[0].running == {0, 1, 2}
    them[0].claims.stop()
    assert them[0].running == set()
    steps(world, them[1:], 2)
    assert sum(len(each.running) for each in them) == 3
    assert {number for each in them for number in each.running} == {0, 1, 2}


def test_a_process_that_dies_is_followed(world):
    first, second = processes(world, 2, 1)
    steps(world, [first, second], 7)
    assert first.running == {0}
    steps(world, [second], DURATION + 3)
    assert second.running == {0}


def test_who_cannot_renew_stops_before_another_starts(world):
    first, second = processes(world, 2, 1)
    steps(world, [first, second], 1)
    first.is_cut_off = True
    for _ in range(40):
        steps(world, [first, second], 1)
        assert not (first.running and second.running)
    assert second.running == {0}
    assert first.said


def test_a_request_that_hangs_keeps_no_shard(world):
    first, second = processes(world, 2, 1)
    steps(world, [first], 1)
    for _ in range(int(DURATION) + 3):
        first.claims.expire()  # its other thread hangs
        steps(world, [second], 1)
        assert not (first.running and second.running)
    assert second.running == {0}


def test_a_lease_that_somebody_deleted_is_claimed_again(world):
    (only,) = processes(world, 1, 1)
    steps(world, [only], 1)
    world[0].objects.clear()
    steps(world, [only], 30)
    assert only.running == {0}


def test_a_shard_that_cannot_be_begun_is_given_back(world):
    first, second = processes(world, 2, 1)
    begin = first.running.add

    def none(number):
        raise RuntimeError("can't start new thread")

    first.claims._taken = none
    first.claims.step()
    assert first.claims.ours == frozenset()
    assert world[0].objects["devicemanager-shard-0"]["spec"]["holderIdentity"] == ""
    assert first.said == ["shard 0 is given back: can't start new thread"]
    first.claims._taken = begin
    steps(world, [first, second], 1)
    assert first.running == {0}


def test_an_answer_that_is_none_ends_no_claiming(world, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.0)
    (only,) = processes(world, 1, 1)
    attempt, begun = only.leases.attempt, threading.Event()
    answers = iter([{"kind": "Status"}])
    only.leases.attempt = lambda *asked: next(answers, None) or attempt(*asked)
    only.claims._taken = lambda number: begun.set()
    only.claims.start()
    assert begun.wait(20)
    only.claims.stop()
    assert only.said == ["shards: unexpected KeyError: 'metadata'"]


def test_claims_whose_second_thread_cannot_start_can_be_stopped(world, monkeypatch):
    (only,) = processes(world, 1, 1)
    start = threading.Thread.start

    def one(self):
        if self.name == "shards expire":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        only.claims.start()
    only.claims.stop()


MOVES = st.lists(
    st.tuples(st.sampled_from(["cut", "back", "wait", "hang"]), st.integers(0, 2)), max_size=25
)


@given(MOVES)
def test_never_two_at_once(moves):
    world = Leases(), [0.0]
    them = processes(world, 3, 2)
    hanging = set()
    for move, number in moves:
        them[number].is_cut_off = move == "cut"
        (hanging.add if move == "hang" else hanging.discard)(number)
        for _ in range(4):
            for index, each in enumerate(them):
                each.claims.expire()
                if index not in hanging:
                    each.claims.step()
                running = [shard for each in them for shard in each.running]
                assert len(running) == len(set(running))
            world[1][0] += 1
    for each in them:
        each.is_cut_off = False
    steps(world, them, int(DURATION + GIVE_UP))
    assert sorted(shard for each in them for shard in each.running) == [0, 1]


def test_shards_by_hand():
    shard = shard_option("1/3")
    assert [index for index in range(7) if shard.has(index)] == [1, 4]
    assert shard == Shard(1, 3)
    for text in ("", "1", "3/3", "-1/3", "a/b", "1/0", "00000/1"):
        with pytest.raises(ValueError, match="is not like 0/3"):
            shard_option(text)


@pytest.mark.parametrize("seconds", [30, None])
def test_a_claim_holds_as_long_as_its_lease_says(world, seconds):
    """That of another one whose settings are others; 15 seconds if it says nothing."""
    leases, time = world
    spec = {"holderIdentity": "another", "leaseDurationSeconds": seconds}
    leases.objects["devicemanager-shard-0"] = {"metadata": {"resourceVersion": "0"}, "spec": spec}
    (only,) = processes(world, 1, 1)
    free_at = seconds or 15
    only.claims.step()
    time[0] = free_at - 0.1
    only.claims.step()
    assert only.running == set()
    time[0] = free_at
    only.claims.step()
    assert only.running == {0}
