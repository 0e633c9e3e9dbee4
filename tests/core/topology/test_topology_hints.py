"""Hints against their definition over plain sets of devices."""

from __future__ import annotations

from itertools import combinations
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core import bitset
from devicemanager.core.topology import (
    DeviceLayout,
    Hint,
    NumaTopology,
    layout_hints,
    resource_hints,
)

MACHINE = NumaTopology.of([0, 1])
PREFERRED = True


@attrs.frozen
class Case:
    """A machine and a resource; devices are numbers."""

    nodes: tuple[int, ...]
    numa: tuple[frozenset[int], ...]
    available: frozenset[int]
    reusable: frozenset[int]
    request: int

    @property
    def topology(self) -> NumaTopology:
        return NumaTopology.of(self.nodes)

    @property
    def per_node(self) -> dict[int, int]:
        per_node: dict[int, int] = {}
        for number, nodes in enumerate(self.numa):
            for node in nodes:
                per_node[node] = per_node.get(node, 0) | 1 << number
        return per_node

    def hints(self) -> tuple[Hint, ...]:
        return generate_hints(
            self.topology,
            self.per_node,
            (1 << len(self.numa)) - 1,
            bitset.of(self.available),
            bitset.of(self.reusable),
            self.request,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ids = st.integers(0, 9)
    nodes = tuple(sorted(draw(st.sets(ids, min_size=1, max_size=5))))
    # Mostly nodes of the machine, sometimes others, none or several.
    node = st.one_of(st.sampled_from(nodes), st.sampled_from(nodes), ids)
    numa = tuple(draw(st.lists(st.frozensets(node, max_size=3), max_size=9)))
    # Each device is in use, available or reusable.
    state = draw(st.lists(st.sampled_from("uaaar"), min_size=len(numa), max_size=len(numa)))
    return Case(
        nodes,
        numa,
        frozenset(n for n, s in enumerate(state) if s == "a"),
        frozenset(n for n, s in enumerate(state) if s == "r"),
        draw(st.integers(0, 6)),
    )


def by_definition(case: Case) -> tuple[Hint, ...]:
    """Compute hints by the literal rules, over plain sets."""
    smallest, found = len(case.nodes), []
    for size in range(1, len(case.nodes) + 1):
        for chosen in combinations(case.nodes, size):
            touching = {n for n, nodes in enumerate(case.numa) if nodes & set(chosen)}
            if len(touching) >= case.request:
                smallest = min(smallest, size)
            reusable = {n for n in case.reusable if case.numa[n]}
            if not reusable <= touching:
                continue
            if len((reusable | case.available) & touching) >= case.request:
                found.append(chosen)
    return tuple(Hint(bitset.of(chosen), len(chosen) == smallest) for chosen in found)


@given(cases())
def test_hints_agree_with_their_definition(case: Case) -> None:
    assert case.hints() == by_definition(case)


@given(cases(), st.randoms())
def test_numbering_of_devices_does_not_matter(case: Case, random: Random) -> None:
    order = list(range(len(case.numa)))
    random.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    shuffled = attrs.evolve(
        case,
        numa=tuple(case.numa[old] for old in order),
        available=frozenset(place[n] for n in case.available),
        reusable=frozenset(place[n] for n in case.reusable),
    )
    assert shuffled.hints() == case.hints()


@given(cases())
def test_unlisted_devices_do_not_count(case: Case) -> None:
    listed = (1 << len(case.numa)) - 1
    ghosts = {node: bits | 1 << 20 for node, bits in case.per_node.items()}
    hints = generate_hints(
        case.topology,
        ghosts,
        listed,
        bitset.of(case.available) | 1 << 20,
        bitset.of(case.reusable),
        case.request,
    )
    assert hints == case.hints()


@given(cases())
def test_groups_partition_the_devices(case: Case) -> None:
    layout = DeviceLayout.of(case.topology, case.per_node)
    everyone = layout.elsewhere
    for mask, members in zip(layout.masks, layout.members, strict=True):
        assert mask and not everyone & members
        everyone |= members
    assert everyone == bitset.of(n for n, nodes in enumerate(case.numa) if nodes)
    assert layout.has_topology == bool(everyone)


def generate_hints(
    topology: NumaTopology,
    per_node: dict[int, int],
    listed: int,
    available: int,
    reusable: int,
    request: int,
) -> tuple[Hint, ...]:
    layout = DeviceLayout.of(topology, per_node, listed)
    return layout_hints(layout, available, reusable, request)


def two_and_two() -> DeviceLayout:
    return DeviceLayout.of(MACHINE, {0: 0b0011, 1: 0b1100})


def test_one_device_fits_on_either_node() -> None:
    assert layout_hints(two_and_two(), 0b1111, 0, 1) == (
        Hint(1, PREFERRED),
        Hint(2, PREFERRED),
        Hint(3, False),
    )


def test_preferred_size_ignores_what_is_in_use() -> None:
    # One free device on each node: two nodes are needed, but one if none were in use.
    assert layout_hints(two_and_two(), 0b0101, 0, 2) == (Hint(3, False),)


def test_too_many_devices_fit_nowhere() -> None:
    assert layout_hints(two_and_two(), 0b1111, 0, 5) == ()


def test_hint_touches_reusable_devices() -> None:
    assert layout_hints(two_and_two(), 0b1101, 0b0010, 1) == (Hint(1, PREFERRED), Hint(3, False))


def test_reusable_device_on_unknown_node_excludes_all_hints() -> None:
    layout = DeviceLayout.of(MACHINE, {0: 0b01, 9: 0b10})
    assert layout_hints(layout, 0b01, 0b10, 1) == ()


def test_resource_without_topology_has_no_preference() -> None:
    assert resource_hints(DeviceLayout.of(MACHINE, {}), 0b1111, 0, 1) is None


def test_devices_on_unknown_nodes_fit_nowhere() -> None:
    assert resource_hints(DeviceLayout.of(MACHINE, {7: 0b11}), 0b11, 0, 1) == ()
    assert resource_hints(DeviceLayout.of(MACHINE, {-1: 0b1111}), 0b1111, 0, 1) == ()
    # A device whose only node is invalid is in no set of devices by node.
    outside = DeviceLayout.of(MACHINE, {}, with_topology=0b1)
    assert resource_hints(outside, 0b1111, 0, 1) == ()


def test_hints_of_allocated_devices_are_their_nodes() -> None:
    hints = resource_hints(two_and_two(), 0b0011, 0, 1, allocated=0b0100)
    assert hints == (Hint(2, PREFERRED), Hint(3, False))


@pytest.mark.parametrize(("allocated", "count"), [(0b0110, None), (0b0100, 2)])
def test_changed_request_fits_nowhere(allocated: int, count: int | None) -> None:
    assert resource_hints(two_and_two(), 0b1111, 0, 1, allocated, count) == ()


def test_too_few_available_devices_fit_nowhere() -> None:
    assert resource_hints(two_and_two(), 0b0001, 0b0010, 3) == ()


def test_counts_above_the_request_share_a_cached_result() -> None:
    many = DeviceLayout.of(MACHINE, {0: (1 << 100) - 1, 1: (1 << 200) - (1 << 100)})
    before = layout_hints(many, (1 << 200) - 1, 0, 3)
    assert layout_hints(many, (1 << 200) - 1 - 0xFF, 0, 3) is before


def test_hints_on_nine_nodes() -> None:
    nine = NumaTopology.of(range(9))
    hints = generate_hints(nine, {8: 1}, 1, 1, 0, 1)
    assert len(hints) == 256
    assert hints[0] == Hint(1 << 8, PREFERRED)
    assert not any(hint.preferred for hint in hints[1:])
