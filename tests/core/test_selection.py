"""Choice of devices: alignment, preference calls, and their responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.allocation.selection import (
    AllocateAnswer,
    Partition,
    PreferenceWanted,
    Selection,
    partition,
    select,
)
from devicemanager.core.devices import Device
from devicemanager.core.endpoints import Endpoints, PluginOptions
from devicemanager.core.errors import AllocationError, RpcError
from devicemanager.core.ids import DeviceId, PodUid
from devicemanager.core.ledger import Draft, Ledger
from devicemanager.testing import fakes
from tests import strategies
from tests.helpers import answer, device, device_list, devices
from tests.strategies import GPU

EVERYWHERE = [
    device("free"),
    device("n0", 0),
    device("n01", 0, 1),
    device("n1", 1),
    device("n2", 2),
]
ALL = 0b11111


def names(part: Partition) -> tuple[list[str], list[str], list[str]]:
    device_index = device_list(EVERYWHERE).device_index
    return (
        list(device_index.select(part.aligned)),
        list(device_index.select(part.unaligned)),
        list(device_index.select(part.without_topology)),
    )


@pytest.mark.parametrize(
    ("affinity", "aligned", "unaligned", "without"),
    [
        (None, [], [], ["free", "n0", "n01", "n1", "n2"]),
        (0b001, ["n0", "n01"], ["n1", "n2"], ["free"]),
        (0b010, ["n01", "n1"], ["n0", "n2"], ["free"]),
        (0b100, ["n2"], ["n0", "n01", "n1"], ["free"]),
        (0b011, ["n0", "n01", "n1"], ["n2"], ["free"]),
        (0b111, ["n0", "n01", "n1", "n2"], [], ["free"]),
        (0b1000, [], ["n0", "n01", "n1", "n2"], ["free"]),
    ],
)
def test_partition_by_affinity(affinity, aligned, unaligned, without):
    got = partition(device_list(EVERYWHERE), ALL, affinity)
    assert names(got) == (aligned, unaligned, without)


def test_partition_without_topology():
    # The affinity does not apply to a resource without topology.
    assert partition(device_list(devices("a", "b")), 0b11, 0b01) == Partition(0, 0, 0b11)


def test_empty_topology_counts_as_none():
    # Q13
    rows = [device("a", 0), Device(DeviceId("b"), numa=())]
    assert partition(device_list(rows), 0b11, 0b01) == Partition(0b01, 0, 0b10)


@given(strategies.device_lists, st.integers(0, 1023), st.none() | st.integers(1, 3))
def test_partition_splits_what_is_available(rows, mask, affinity):
    # The three parts are disjoint, and their union is the available set.
    listed = device_list(rows)
    available = mask & ((1 << listed.capacity) - 1)
    part = partition(listed, available, affinity)
    parts = (part.aligned, part.unaligned, part.without_topology)
    assert part.aligned | part.unaligned | part.without_topology == available
    assert sum(bits.bit_count() for bits in parts) == available.bit_count()
    if affinity is not None and listed.has_topology:
        for number, row in enumerate(listed.devices()):
            if available >> number & 1:
                on = {node for node in row.numa or () if affinity >> node & 1}
                where = 0 if on else 1 if row.numa else 2
                assert parts[where] >> number & 1


def selection(rows, required, *, affinity=None, preferred=True, used=()) -> Selection:
    endpoints, ledger = Endpoints(), Ledger()
    options = PluginOptions(get_preferred_allocation_available=preferred)
    endpoint, _ = endpoints.connect(GPU, "plugin", options)
    endpoints.update(endpoint.id, device_list(rows))
    ledger.reserve(Draft(PodUid("other")), GPU, frozenset(map(DeviceId, used)))
    return Selection(GPU, required, affinity, endpoints, ledger, Draft(PodUid("pod")))


def run(chosen: Selection, reusable=(), preference=fakes.first):
    """Return the sorted devices and the calls that were made."""
    steps = select(chosen, frozenset(map(DeviceId, reusable)))
    calls: list[PreferenceWanted] = []
    try:
        wanted = next(steps)
        while True:
            calls.append(wanted)
            wanted = steps.send(answer(wanted, preference))
    except StopIteration as done:
        return sorted(done.value), calls


def test_lowest_ids_are_chosen_without_preference():
    chosen, calls = run(selection(devices("c", "b", "a"), 2, preferred=False))
    assert (chosen, calls) == (["a", "b"], [])


def test_preference_is_requested_for_all_available_devices():
    rows = [*devices("a", "b", "c", "d"), device("sick", health="Unhealthy")]
    chosen, calls = run(selection(rows, 2, used=["b"]), preference=fakes.last)
    assert chosen == ["c", "d"]
    assert [(q.available, q.must_include, q.size) for q in calls] == [(("a", "c", "d"), (), 2)]


def test_more_aligned_devices_than_needed():
    # Only aligned devices are offered; other devices in the preference are ignored.
    rows = [device("a0", 0), device("b0", 0), device("c0", 0), device("d1", 1), device("e")]
    chosen, calls = run(selection(rows, 2, affinity=0b01), preference=fakes.last)
    assert chosen == ["b0", "c0"]
    assert [(q.available, q.must_include) for q in calls] == [(("a0", "b0", "c0"), ())]
    stubborn = lambda available, must, size: (DeviceId("d1"), DeviceId("e"))  # noqa: E731
    assert run(selection(rows, 2, affinity=0b01), preference=stubborn)[0] == ["a0", "b0"]


def test_as_many_aligned_devices_as_needed():
    # All of them are chosen, so no call is needed.
    rows = [device("a0", 0), device("b0", 0), device("c1", 1)]
    assert run(selection(rows, 2, affinity=0b01)) == (["a0", "b0"], [])


def test_too_few_aligned_devices():
    # All aligned devices are chosen; the call for the rest includes them.
    rows = [device("a0", 0), device("b1", 1), device("c1", 1), device("d")]
    chosen, calls = run(selection(rows, 2, affinity=0b01), preference=fakes.last)
    assert chosen == ["a0", "d"]
    call = calls[0]
    assert (call.available, call.must_include) == (("a0", "b1", "c1", "d"), ("a0",))
    assert call.size == 2


def test_unaligned_devices_come_before_those_without_topology():
    rows = [device("a0", 0), device("b"), device("c1", 1)]
    assert run(selection(rows, 2, affinity=0b01, preferred=False))[0] == ["a0", "c1"]
    assert run(selection(rows, 3, affinity=0b01, preferred=False))[0] == ["a0", "b", "c1"]


@pytest.mark.parametrize("preference", [fakes.garbage, lambda *_: (), lambda *_: ("a", "a")])
def test_invalid_preference_is_filled_up(preference):
    assert run(selection(devices("a", "b", "c"), 2), preference=preference)[0] == ["a", "b"]


def test_short_preference_is_filled_up():
    stubborn = lambda *_: (DeviceId("c"),)  # noqa: E731
    assert run(selection(devices("a", "b", "c"), 2), preference=stubborn)[0] == ["a", "c"]


def test_long_preference_is_cut():
    assert run(selection(devices("a", "b", "c"), 2), preference=lambda *_: ("c", "b", "a"))[0] == [
        "a",
        "b",
    ]


def test_reusable_devices_come_first():
    rows = devices("a", "b", "c", "d")
    chosen, calls = run(selection(rows, 2, used=["c", "d"]), reusable=["c", "d"])
    assert (chosen, calls) == (["c", "d"], [])
    chosen, calls = run(selection(rows, 3, used=["d"]), reusable=["d"], preference=fakes.last)
    assert chosen == ["b", "c", "d"]
    assert (calls[0].available, calls[0].must_include) == (("a", "b", "c", "d"), ("d",))
    assert calls[0].size == 3


def test_reusable_device_may_be_unlisted():
    assert run(selection(devices("a"), 2), reusable=["z"])[0] == ["a", "z"]


def test_too_few_devices_are_rejected():
    with pytest.raises(AllocationError) as rejected:
        run(selection(devices("a", "b", "c"), 4, used=["b"]), reusable=["b"])
    assert str(rejected.value) == (
        "requested number of devices unavailable for vendor.com/gpu. Requested: 3, Available: 2"
    )


def test_failed_preference_is_rejected():
    steps = select(selection(devices("a", "b"), 1), frozenset())
    next(steps)
    with pytest.raises(AllocationError) as rejected:
        steps.throw(RpcError("Unknown", "no preference for you"))
    assert str(rejected.value) == (
        "device plugin GetPreferredAllocation rpc failed with err: "
        "rpc error: code = Unknown desc = no preference for you"
    )


def test_response_of_the_wrong_type_is_an_error():
    steps = select(selection(devices("a", "b"), 1), frozenset())
    next(steps)
    with pytest.raises(TypeError, match="tuple of device IDs"):
        steps.send(AllocateAnswer(()))


def test_preferred_device_was_allocated_during_the_call():
    chosen = selection(devices("a", "b", "c"), 2)
    steps = select(chosen, frozenset())
    next(steps)
    chosen.ledger.reserve(Draft(PodUid("third")), GPU, frozenset({DeviceId("a")}))
    with pytest.raises(StopIteration) as done:
        steps.send((DeviceId("a"), DeviceId("b")))
    assert sorted(done.value.value) == ["b", "c"]


def test_too_few_devices_are_left_after_the_call():
    chosen = selection(devices("a", "b"), 2)
    steps = select(chosen, frozenset())
    next(steps)
    chosen.ledger.reserve(Draft(PodUid("third")), GPU, frozenset({DeviceId("a")}))
    with pytest.raises(
        AllocationError,
        match=r"^requested number of devices unavailable for "
        r"vendor\.com/gpu\. Requested: 1, Available: 0",
    ):
        steps.send((DeviceId("a"), DeviceId("b")))


def test_preferred_device_became_unhealthy_during_the_call():
    chosen = selection(devices("a", "b"), 1)
    steps = select(chosen, frozenset())
    call = next(steps)
    rows = [device("a", health="Unhealthy"), device("b")]
    chosen.endpoints.update(call.endpoint, device_list(rows, chosen.view().devices))
    with pytest.raises(StopIteration) as done:
        steps.send((DeviceId("a"),))
    assert done.value.value == {"b"}


@given(
    rows=strategies.device_lists,
    required=st.integers(0, 6),
    affinity=st.none() | st.integers(1, 3),
    preference=strategies.preferences,
    used=st.sets(strategies.device_ids, max_size=4),
)
def test_chosen_devices_meet_all_rules(rows, required, affinity, preference, used):
    # Exactly the required number, all healthy and free; rejected only if there are too few.
    # Aligned devices come before all others. At most one call is made, and it offers only
    # free devices.
    chosen = selection(rows, required, affinity=affinity, preferred=preference is not None,
                       used=used)  # fmt: skip
    free = {row.id for row in rows if row.is_healthy} - used
    view = chosen.view()
    aligned = set(view.devices.device_index.select(view.parts(affinity).aligned))
    try:
        ids, calls = run(chosen, preference=preference or fakes.first)
    except AllocationError:
        assert required > len(free)
        return
    assert len(ids) == required and set(ids) <= free
    assert set(ids) >= aligned or set(ids) <= aligned
    assert len(calls) <= (preference is not None)
    for call in calls:
        assert set(call.available) <= free and call.size == required
        assert set(call.must_include) <= set(call.available) & set(ids)
    assert frozenset(ids) == frozenset().union(*chosen.draft.reserved.get(GPU, []))
