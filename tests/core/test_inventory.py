"""Device lists: counts, numbering, changes and warnings."""

from __future__ import annotations

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core import bitset
from devicemanager.core.devices import Device
from devicemanager.core.inventory import EMPTY, Columns, changes, device_list_from, list_warnings
from tests import strategies
from tests.helpers import device, device_list, devices


def last_rows(rows: list[Device]) -> dict[str, Device]:
    return {row.id: row for row in rows}


@given(strategies.raw_lists, strategies.raw_lists)
def test_capacity_and_allocatable(earlier, rows):
    # Capacity counts healthy and unhealthy ids, so an id that is both counts twice. The list
    # before does not matter.
    result = device_list(rows, device_list(earlier))
    counted = last_rows(rows)
    healthy = {row.id for row in rows if row.health == "Healthy"}
    unhealthy = {row.id for row in rows if row.health != "Healthy"}
    assert result.capacity == len(healthy) + len(unhealthy)
    assert result.allocatable == len(healthy)
    assert {d.id: d for d in result.devices()} == counted
    assert [d.id for d in result.devices()] == sorted(counted)


@given(strategies.raw_lists)
def test_devices_are_numbered_in_id_order(rows):
    # Numbers follow the order of IDs; each node has exactly the devices that name it.
    device_index = device_list(rows).device_index
    counted = last_rows(rows)
    assert list(device_index.ids) == sorted(counted)
    assert all(device_index.index[id_] == number for number, id_ in enumerate(device_index.ids))
    for node in (0, 1):
        on_node = {id_ for id_, row in counted.items() if node in (row.numa or ())}
        assert set(device_index.select(device_index.per_node.get(node, 0))) == on_node
    with_topology = {id_ for id_, row in counted.items() if row.numa}
    assert set(device_index.select(device_index.with_topology)) == with_topology
    without_nodes = {id_ for id_, row in counted.items() if row.numa == ()}
    assert set(device_index.select(device_index.without_nodes)) == without_nodes


@given(strategies.device_lists, st.randoms(use_true_random=False))
def test_order_of_a_list_does_not_matter(rows, random):
    # A permuted list has the same devices, numbers and sets, and no changes.
    shuffled = random.sample(rows, len(rows))
    one, other = device_list(rows), device_list(shuffled)
    assert other.devices() == one.devices()
    assert (other.healthy, other.device_index.per_node) == (one.healthy, one.device_index.per_node)
    assert not changes(one, other)
    assert device_list(shuffled, one).device_index is one.device_index


@given(strategies.raw_lists, strategies.raw_lists)
def test_changes_between_lists(earlier, rows):
    # The result equals a comparison of the devices one by one, whether or not the lists
    # share a numbering.
    before, after = last_rows(earlier), last_rows(rows)

    def seen(rows: list[Device], id_: str) -> tuple[object, ...]:
        same = [row for row in rows if row.id == id_]
        return any(row.is_healthy for row in same), same[-1].numa

    first = device_list(earlier)
    for second in (device_list(rows), device_list(rows, first)):
        found = changes(first, second)
        assert list(found.added) == sorted(after.keys() - before.keys())
        assert list(found.removed) == sorted(before.keys() - after.keys())
        assert list(found.changed) == sorted(
            id_ for id_ in before.keys() & after.keys() if seen(earlier, id_) != seen(rows, id_)
        )
        assert bool(found) == bool(found.added or found.removed or found.changed)


@given(strategies.raw_lists)
def test_disconnected_list_is_not_allocatable(rows):
    # After a disconnect the devices are the same, and none may be allocated.
    connected = device_list(rows)
    disconnected = connected.disconnected()
    assert (disconnected.capacity, disconnected.allocatable) == (len(last_rows(rows)), 0)
    assert disconnected.devices() == connected.devices()
    assert changes(connected, disconnected).changed == connected.device_index.select(
        connected.healthy
    )
    reconnected = device_list(rows, disconnected)
    assert reconnected.healthy == connected.healthy
    assert reconnected.device_index is disconnected.device_index


def test_health_change_keeps_the_numbering():
    before = device_list([device("b", 1), device("a", 0)])
    after = device_list([device("b", 1, health="Unhealthy"), device("a", 0)], before)
    assert after.device_index is before.device_index
    assert changes(before, after).changed == ("b",)


def test_topology_change_replaces_the_numbering():
    before = device_list([device("a", 0)])
    after = device_list([device("a", 1)], before)
    assert after.device_index is not before.device_index
    assert changes(before, after).changed == ("a",)


def test_last_row_of_an_id_counts():
    result = device_list([device("a", 0), device("a", 1, health="Sick")])
    assert result.devices() == (device("a", 1, health="Sick"),)


def test_unknown_ids_are_left_out():
    device_index = device_list(devices("a", "b")).device_index
    assert device_index.bits(["b", "zebra"]) == bitset.of([1])


def test_empty_list():
    assert (EMPTY.capacity, EMPTY.allocatable, EMPTY.has_topology) == (0, 0, False)
    assert not changes(EMPTY, device_list([]))


def test_warnings_about_a_list():
    rows = [
        device("a"),
        device("a"),
        device("", health="Sick"),
        device("b", -5),
    ]
    columns = Columns.of(rows)
    assert list_warnings(columns, device_list_from(columns)) == (
        "1 duplicate device ID: the kubelet can count a device twice",
        "a device has an empty ID",
        "invalid health 'Sick': counts as Unhealthy",
        "invalid NUMA node -5: the device fits no node; use 0 to 1023",
    )


def test_no_warnings_about_a_valid_list():
    columns = Columns.of([device("a", 0), device("b", health="Unhealthy")])
    assert list_warnings(columns, device_list_from(columns)) == ()


def test_negative_node_is_topology_without_nodes():
    result = device_list([device("a", -5)])
    assert result.has_topology
    assert dict(result.device_index.per_node) == {}


def test_node_out_of_range_is_ignored():
    # The limit is Linux's; the device's other nodes still count.
    result = device_list([device("a", 1023, 1024), device("b", 2**62), device("c")])
    assert dict(result.device_index.per_node) == {1023: 1}
    assert result.device_index.impossible_node == 1024
    assert result.device_index.with_topology == 0b11
    assert result.device("b").numa == (2**62,)


# -- cost of any list ----------------------------------------------------------------------

SHAPES = {
    "one node": lambda n: [device(f"{i:x}", 0) for i in range(n)],
    "none": lambda n: [device(f"{i:x}") for i in range(n)],
    "a node each": lambda n: [device(f"{i:x}", i) for i in range(n)],
    "a negative node each": lambda n: [device(f"{i:x}", -i - 1) for i in range(n)],
    "a possible node each": lambda n: [device(f"{i:x}", i % 1024) for i in range(n)],
    "two nodes each": lambda n: [device(f"{i:x}", i % 1024, i // 1024) for i in range(n)],
    "all nodes at once": lambda n: [device("a", *range(n))],
    "one node again and again": lambda n: [device("a", *[0] * n)],
    "the same id repeated": lambda n: [device("a", i) for i in range(n)],
    "distinct health values": lambda n: [device(f"{i:x}", health=f"{i}") for i in range(n)],
}


def cost_of_a_list(rows: list[Device]) -> tuple[int, int]:
    """Return the Python steps and bytes needed to number a list and to compare it with one
    that has the same devices on other nodes."""
    before = device_list([device(row.id, 0, health="Unhealthy") for row in rows])
    columns = Columns.of(rows)
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        steps += 1
        return count

    tracemalloc.start()
    tracer = sys.gettrace()  # set by coverage if it is measuring
    sys.settrace(count)
    try:
        after = device_list_from(columns, before)
        changes(before, after)
        list_warnings(columns, after)
    finally:
        sys.settrace(tracer)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return steps, peak


@pytest.mark.parametrize("shape", SHAPES)
def test_list_takes_linear_time(shape):
    # A list of twice the length takes twice the time and memory, not four times.
    one, two = (cost_of_a_list(SHAPES[shape](size)) for size in (3000, 6000))
    assert two[0] < 2.5 * one[0] + 1000
    assert two[1] < 2.5 * one[1] + 100_000


def test_choosing_many_devices_takes_linear_time():
    # No integer of the set's length is created per device.
    numbers = range(0, 200_000, 2)
    assert bitset.of(numbers) == int("01" * 100_000, 2)
    assert bitset.lowest(bitset.of(range(200_000)), 100_000) == (1 << 100_000) - 1
    assert sum(1 for _ in bitset.numbers((1 << 200_000) - 1)) == 200_000
