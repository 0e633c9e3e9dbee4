"""Merging, compared with a loop over all combinations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.topology import Hint, Hints, NumaTopology, ProviderHints, merge_hints
from devicemanager.core.topology.merging import (
    flatten_hints,
    merge_narrowest,
    only_single_nodes,
    preferred_masks,
    ranked_narrowest,
    reachable_masks,
)
from tests.strategies import examples

TWO = NumaTopology.of([0, 1])
ANY = Hint(None, True)


@attrs.frozen
class Machine:
    topology: NumaTopology
    hints: tuple[Hints, ...]


@st.composite
def machines(draw: st.DrawFn, max_nodes: int = 4, max_resources: int = 3) -> Machine:
    nodes = tuple(draw(st.sets(st.integers(0, 6), min_size=1, max_size=max_nodes)))
    distance = st.integers(10, 13)
    rows = [[draw(distance) for _ in nodes] for _ in nodes]
    topology = NumaTopology.of(nodes, rows)
    subsets = st.sets(st.sampled_from(nodes), min_size=1).map(lambda s: sum(1 << n for n in s))
    # Sets can have nodes that the machine lacks; hints are in any order, with repetitions.
    masks = st.one_of(st.none(), subsets, subsets, subsets, st.integers(1, 127))
    hint = st.builds(Hint, masks, st.booleans())
    lists = st.lists(hint, min_size=1, max_size=6).map(tuple)
    return Machine(topology, tuple(draw(st.lists(lists, max_size=max_resources))))


def walk(machine: Machine, prefer_closest: bool) -> Hint:
    """Compare each combination with the best so far, rule by rule."""
    everything = machine.topology.all_mask
    narrowest = [
        min((h.mask.bit_count() for h in one if h.mask is not None), default=0)
        for one in machine.hints
    ]
    wanted = max(narrowest, default=0)

    def fitter(one: int, other: int) -> int:
        key = (
            (lambda m: (m.bit_count(), machine.topology.average_distance(m), m))
            if (prefer_closest)
            else (lambda m: (m.bit_count(), m))
        )
        return min(one, other, key=key)

    def better(best: Hint | None, new: Hint) -> Hint | None:
        assert new.mask is not None
        if new.mask == 0:
            return best
        if best is None or best.preferred != new.preferred:
            return new if best is None or new.preferred else best
        assert best.mask is not None
        fit = Hint(fitter(best.mask, new.mask), best.preferred)
        if best.preferred or best.mask.bit_count() > wanted:
            return fit
        have, offered = best.mask.bit_count(), new.mask.bit_count()
        if have == offered:
            return fit
        if have == wanted or offered > wanted or offered < have:
            return best
        return new

    best: Hint | None = None
    for combination in product(*machine.hints):
        masks = [hint.mask for hint in combination if hint.mask is not None]
        merged = reduce(lambda a, b: a & b, masks, everything)
        agree = all(hint.preferred for hint in combination) and len(set(masks)) <= 1
        best = better(best, Hint(merged, agree))
    return best or Hint(everything, False)


@examples(4)
@given(machines(), st.booleans())
def test_merge_agrees_with_trying_all_combinations(machine: Machine, prefer_closest: bool) -> None:
    merged = merge_hints(machine.topology, machine.hints, prefer_closest)
    assert merged == walk(machine, prefer_closest)


def walk_narrowest(machine: Machine) -> Hint:
    """Do the same by the rules up to v1.23."""
    everything = machine.topology.all_mask
    best = Hint(everything, False)
    for combination in product(*machine.hints):
        masks = [hint.mask for hint in combination if hint.mask is not None]
        mask = reduce(lambda a, b: a & b, masks, everything)
        new = Hint(mask, all(hint.preferred for hint in combination))
        if not mask or (best.preferred and not new.preferred):
            continue
        narrower = (mask.bit_count(), mask) < ((best.mask or 0).bit_count(), best.mask)
        if narrower or new.preferred is not best.preferred:
            best = new
    return best


@examples(4)
@given(machines())
def test_merge_up_to_1_23_agrees_with_trying_all_combinations(machine: Machine) -> None:
    merged = merge_narrowest(machine.topology, machine.hints)
    assert merged == walk_narrowest(machine)
    if not merged.preferred:
        ranked = ranked_narrowest(machine.topology, machine.hints)
        assert ranked[:1] in ([], [merged.mask])


@given(machines(), st.booleans(), st.randoms())
def test_order_of_resources_and_hints_does_not_matter(
    machine: Machine, prefer_closest: bool, random: Random
) -> None:
    lists = [list(one) for one in machine.hints]
    random.shuffle(lists)
    for one in lists:
        random.shuffle(one)
    shuffled = tuple(tuple(one) for one in lists)
    merged = merge_hints(machine.topology, machine.hints, prefer_closest)
    assert merge_hints(machine.topology, shuffled, prefer_closest) == merged


@given(machines())
def test_reachable_sets_agree_with_all_combinations(machine: Machine) -> None:
    everything = machine.topology.all_mask
    met = {
        reduce(lambda a, b: a & (everything if b is None else b), masks, everything)
        for masks in product(*([h.mask for h in one] for one in machine.hints))
    }
    assert set(reachable_masks(machine.topology, machine.hints)) == met - {0}
    assert preferred_masks(machine.topology, machine.hints) <= met


@given(machines(max_nodes=3, max_resources=2))
def test_resource_without_preference_changes_nothing(machine: Machine) -> None:
    with_it = (*machine.hints, (ANY,))
    assert merge_hints(machine.topology, with_it) == merge_hints(machine.topology, machine.hints)


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ((), Hint(3, True)),
        ((((1, True), (3, False)), ((2, True), (3, False))), Hint(1, False)),
        ((((1, True), (3, False)), ((3, True),)), Hint(3, False)),
        ((((1, True),), ((2, True),)), Hint(3, False)),
        ((((None, False),),), Hint(3, False)),
        ((((2, True), (3, False)), ((1, True), (2, True), (3, False))), Hint(2, True)),
    ],
    ids=["no resource", "no common node", "needs two", "disjoint", "fits nowhere", "agree"],
)
def test_merge_examples(hints: Sequence[Sequence[tuple[int | None, bool]]], expected: Hint) -> None:
    merged = merge_hints(TWO, tuple(tuple(Hint(*hint) for hint in one) for one in hints))
    assert merged == expected


def test_closest_nodes_win_only_with_the_option() -> None:
    far = NumaTopology.of([0, 1, 2], [[10, 30, 30], [30, 10, 11], [30, 11, 10]])
    hints = ((Hint(0b011, True), Hint(0b101, True), Hint(0b110, True)),)
    assert merge_hints(far, hints) == Hint(0b011, True)
    assert merge_hints(far, hints, prefer_closest=True) == Hint(0b110, True)


def test_flattening_drops_no_preference_and_marks_impossible() -> None:
    somewhere = (Hint(1, True),)
    providers: list[ProviderHints] = [{}, {"a": None, "b": (), "c": somewhere}, {"d": (ANY,)}]
    assert flatten_hints(providers) == ((Hint(None, False),), somewhere)


def test_single_node_filter_keeps_preferred_hints_of_one_node_or_none() -> None:
    hints = (ANY, Hint(None, False), Hint(1, True), Hint(2, False), Hint(3, True))
    assert only_single_nodes([hints]) == ((ANY, Hint(1, True)),)


def test_merge_on_nine_nodes() -> None:
    nine = NumaTopology.of(range(9))
    hints = ((Hint(0b1_1000_0000, True), Hint(511, False)), (Hint(0b1_0000_0001, True),))
    assert merge_hints(nine, hints) == Hint(0b1_0000_0001, False)


def test_preferred_masks_of_resources_without_preference() -> None:
    topology = NumaTopology.of([0, 1])
    anywhere_or_first = (Hint(None, True), Hint(1, True))
    anywhere_or_second = (Hint(None, True), Hint(2, True))
    assert preferred_masks(topology, [anywhere_or_first, anywhere_or_second]) == {1, 2, 3}
    assert preferred_masks(topology, [anywhere_or_first, (Hint(2, True),)]) == {2}
