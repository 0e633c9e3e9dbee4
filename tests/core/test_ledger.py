"""The ledger: drafts, commits, and indexes that agree with a recount."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.errors import InternalError
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedDevices, Draft, Ledger
from tests.helpers import device_list, devices, entries, held_by, holders
from tests.strategies import GPU, NIC

POD, OTHER = PodUid("pod"), PodUid("other")
APP, SIDE = ContainerName("app"), ContainerName("side")
NUMBERING = device_list(devices("a", "b", "c", "d")).device_index


def holding(*ids: str, node: int = -1) -> AllocatedDevices:
    return AllocatedDevices({node: tuple(map(DeviceId, ids))}, b"answer")


def ids(*names: str) -> frozenset[DeviceId]:
    return frozenset(map(DeviceId, names))


def drafted(ledger: Ledger, pod: PodUid, *names: str, container=APP, resource=GPU) -> Draft:
    draft = Draft(pod)
    ledger.reserve(draft, resource, ids(*names))
    ledger.record(draft, container, resource, holding(*names))
    return draft


def used(ledger: Ledger, resource: ResourceName = GPU) -> tuple[str, ...]:
    return NUMBERING.select(ledger.in_use(resource, NUMBERING))


def test_draft_is_in_use_but_not_an_entry():
    ledger = Ledger()
    draft = drafted(ledger, POD, "a", "b")
    assert used(ledger) == ("a", "b")
    assert POD not in ledger and list(ledger.pods()) == []
    assert ledger.is_in_use(GPU) and not ledger.is_in_use(NIC)
    ledger.self_check([draft])


def test_ignored_draft_is_in_use_again_after_commit():
    ledger = Ledger(ignores_drafts=True)
    draft, open_ = drafted(ledger, POD, "a"), Draft(OTHER)
    ledger.reserve(open_, GPU, ids("b"))
    ledger.count_committed_only()
    assert used(ledger) == ("a",)
    ledger.commit(draft)
    ledger.record(open_, APP, GPU, holding("b"))
    ledger.count_committed_only()
    assert used(ledger) == ("a", "b")


def test_commit_makes_entries():
    ledger = Ledger()
    ledger.commit(drafted(ledger, POD, "a", "b"))
    assert held_by(ledger, POD) == {"app": {GPU: ["a", "b"]}}
    assert ledger.allocated(POD, APP, GPU) == ids("a", "b")
    assert ledger.allocated(POD, APP, NIC) is None
    assert ledger.allocated(POD, SIDE, GPU) is None
    assert ledger.allocated_to_pod(POD, GPU) == ids("a", "b")
    assert ledger.pods_using(GPU, ids("a", "c")) == {POD: {"a"}}
    assert list(ledger.resources()) == [(GPU, 2)]
    ledger.self_check()


def test_drop_frees_reservations():
    ledger = Ledger()
    draft = drafted(ledger, POD, "a", "b")
    ledger.drop(draft)
    ledger.drop(draft)
    assert used(ledger) == () and not ledger.is_in_use(GPU)
    assert list(ledger.resources()) == []
    ledger.self_check()


def test_drop_after_commit_does_nothing():
    ledger = Ledger()
    draft = drafted(ledger, POD, "a")
    ledger.commit(draft)
    ledger.drop(draft)
    assert used(ledger) == ("a",)
    ledger.self_check()


def test_retract_undoes_a_commit():
    ledger = Ledger()
    ledger.commit(drafted(ledger, POD, "a"))
    before = entries(ledger)
    draft = drafted(ledger, POD, "b", container=SIDE)
    ledger.commit(draft)
    ledger.retract(draft)
    assert entries(ledger) == before
    assert used(ledger) == ("a",)
    ledger.self_check()


def test_retract_removes_an_empty_pod():
    ledger = Ledger()
    draft = drafted(ledger, POD, "a")
    ledger.commit(draft)
    ledger.retract(draft)
    assert POD not in ledger
    ledger.retract(draft)  # as if the pod was released in between
    assert used(ledger) == ()
    ledger.self_check()


def test_device_of_two_containers_is_in_use_until_both_are_released():
    # A device of an init container that an app container reuses.
    ledger = Ledger()
    draft = drafted(ledger, POD, "a", "b")
    ledger.reserve(draft, GPU, ids("a"))
    ledger.record(draft, SIDE, GPU, holding("a"))
    ledger.commit(draft)
    assert ledger.allocated_to_pod(POD, GPU) == ids("a", "b")
    assert list(ledger.resources()) == [(GPU, 2)]
    ledger.self_check()
    assert ledger.release(POD).keys() == {APP, SIDE}
    assert used(ledger) == ()
    ledger.self_check()


def test_same_id_in_two_resources_is_two_devices():
    # Q8
    ledger = Ledger()
    ledger.commit(drafted(ledger, POD, "a", resource=GPU))
    ledger.commit(drafted(ledger, OTHER, "a", resource=NIC))
    assert ledger.pods_using(GPU, ids("a")) == {POD: {"a"}}
    assert ledger.pods_using(NIC, ids("a")) == {OTHER: {"a"}}
    ledger.release(POD)
    assert (used(ledger, GPU), used(ledger, NIC)) == ((), ("a",))


def test_devices_in_use_follow_a_new_numbering():
    ledger = Ledger()
    ledger.commit(drafted(ledger, POD, "a", "c"))
    assert used(ledger) == ("a", "c")
    renumbered = device_list(devices("0", "c", "x")).device_index
    assert renumbered.select(ledger.in_use(GPU, renumbered)) == ("c",)
    ledger.commit(drafted(ledger, OTHER, "x"))
    assert renumbered.select(ledger.in_use(GPU, renumbered)) == ("c", "x")
    assert used(ledger) == ("a", "c")
    ledger.self_check()


def test_device_on_two_nodes_counts_once():
    ledger = Ledger()
    both = AllocatedDevices({0: (DeviceId("a"),), 1: (DeviceId("a"), DeviceId("b"))}, None)
    ledger.restore([(POD, APP, GPU, both)])
    assert ledger.allocated(POD, APP, GPU) == ids("a", "b")
    assert list(ledger.resources()) == [(GPU, 2)]
    ledger.self_check()


def test_last_restored_entry_counts():
    ledger = Ledger()
    ledger.restore([(POD, APP, GPU, holding("a", "b")), (POD, APP, GPU, holding("b", "c"))])
    assert ledger.allocated(POD, APP, GPU) == ids("b", "c")
    assert used(ledger) == ("b", "c")
    ledger.self_check()


def test_restored_device_of_two_pods():
    ledger = Ledger()
    ledger.restore([(POD, APP, GPU, holding("a")), (OTHER, APP, GPU, holding("a"))])
    assert ledger.pods_using(GPU, ids("a")) == {POD: {"a"}, OTHER: {"a"}}
    ledger.release(POD)
    assert used(ledger) == ("a",)
    ledger.self_check()


def test_release_of_unknown_pod_does_nothing():
    assert Ledger().release(POD) == {}


# The indexes are modified directly, because correct methods keep them right.
@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda ledger: ledger._index[GPU].users.pop(DeviceId("a")), "users of vendor.com/gpu"),
        (lambda ledger: ledger._index[GPU].users.update(x=(POD,)), "users of vendor.com/gpu"),
        (lambda ledger: ledger._index[GPU].users.update(a=(OTHER,)), "users of vendor.com/gpu"),
        (
            lambda ledger: setattr(ledger._index[GPU], "bits", 8),
            "set in use of vendor.com/gpu differs",
        ),
        (lambda ledger: ledger._index.clear(), "no index for"),
        (lambda ledger: ledger._pods.clear(), "users of vendor.com/gpu"),
    ],
)
def test_self_check_detects_a_wrong_index(spoil, text):
    ledger = Ledger()
    ledger.commit(drafted(ledger, POD, "a", "b"))
    used(ledger)
    ledger.self_check()
    spoil(ledger)
    with pytest.raises(InternalError, match=text):
        ledger.self_check()


def test_self_check_detects_a_missing_draft():
    ledger = Ledger()
    drafted(ledger, POD, "a")
    with pytest.raises(InternalError, match=r"^inconsistent ledger: the indexed users"):
        ledger.self_check()


ACTIONS = st.tuples(
    st.sampled_from(["reserve", "commit", "drop", "retract", "release", "restore", "withdraw"]),
    st.sampled_from(["p", "q", "r"]),
    st.sampled_from(["app", "side"]),
    st.sampled_from([GPU, NIC]),
    st.sets(st.sampled_from("abcdef"), max_size=3),
)


@given(st.lists(ACTIONS, max_size=25))
def test_random_operations_keep_the_indexes_right(actions):
    # After any sequence of writes self_check passes, and the set in use is exactly the union
    # of entries and open drafts. Results of earlier queries do not change.
    ledger = Ledger()
    drafts: dict[str, Draft] = {}
    committed: dict[str, Draft] = {}
    for action, uid, container, resource, names in actions:
        pod = PodUid(uid)
        before = ledger.snapshot()
        copied = entries(ledger)
        match action:
            case "reserve":
                # Like the allocator: one record for each key without an entry.
                draft = drafts.get(uid) or Draft(pod)
                known = draft.allocated.get(container, {})
                if resource in known or ledger.allocated(pod, container, resource) is not None:
                    continue
                drafts[uid] = draft
                ledger.reserve(draft, resource, ids(*names))
                ledger.record(draft, container, resource, holding(*names))
            case "commit" if uid in drafts:
                committed[uid] = drafts.pop(uid)
                ledger.commit(committed[uid])
            case "drop" if uid in drafts:
                ledger.drop(drafts.pop(uid))
            case "retract" if uid in committed:
                ledger.retract(committed.pop(uid))
            case "withdraw" if uid in drafts or uid in committed:
                taken_back = drafts.pop(uid, None) or committed.pop(uid)
                ledger.withdraw(taken_back, drafts.values())
            case "release":
                ledger.release(pod)
                committed.pop(uid, None)
            case "restore" if uid not in drafts and uid not in committed:
                ledger.restore([(pod, ContainerName(container), resource, holding(*names))])
        assert before == copied
        ledger.self_check(drafts.values())
        counted = holders(ledger, drafts.values())
        for name in (GPU, NIC):
            in_use = {id_ for resource, id_ in counted if resource == name}
            device_index = device_list(devices(*"abcdef")).device_index
            assert set(device_index.select(ledger.in_use(name, device_index))) == in_use
            assert ledger.is_in_use(name) == bool(in_use)


@pytest.mark.parametrize("change", ["restore", "commit", "withdraw", "retract", "release"])
def test_returned_entries_do_not_change(change):
    ledger = Ledger()
    draft = drafted(ledger, POD, "a")
    ledger.commit(draft)
    returned, before = ledger.pod(POD), entries(ledger)[POD]
    match change:
        case "restore":
            ledger.restore([(POD, APP, NIC, holding("n")), (POD, APP, GPU, holding("b"))])
        case "commit":
            other = Draft(POD)
            ledger.record(other, APP, NIC, holding("n"))
            ledger.commit(other)
        case "withdraw":
            ledger.withdraw(draft, ())
        case "retract":
            ledger.retract(draft)
        case "release":
            ledger.release(POD)
    assert returned == before and ledger.pod(POD) != before
