"""Assign whole devices to all demands within the budgets of the pools, if possible.

In:  a ``LedgerView``, and demands (``max_flow.Demand``).
Out: disjoint sets of devices, one for each demand, whose charges fit the headroom of each pool.
     None means that no such sets exist.

The docstring of the package ``claims.core`` defines charge, headroom and all other terms.
"""

# The problem is NP-hard: with devices as vertices and budgets of one as edges, it asks for an
# independent set. So every part counts steps, and the work is divided where possible:
#
# 1. A budget belongs to one pool. For each pool, ``_servable`` finds how many devices the pool
#    can give to each demand. The results are vectors of counts, without the dominated ones.
# 2. Pools of the same make (equal cards, partitioned in the same way) share that result.
# 3. ``_divide`` adds the vectors of one pool after another, until a sum covers all demands.
#
# Demands for the same set of devices are merged into one: only their sum matters, and each
# demand adds a dimension to the vectors.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import add, ge, sub

import attrs

from devicemanager.claims.core.inventory import DeviceKind
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.max_flow import Demand
from devicemanager.claims.core.packing import Packing
from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.core import bitset

_MOST_PACKED = 200
"""Maximum number of devices for which ``Packing`` searches: it recurses for each device."""

Counts = tuple[int, ...]
"""Number of devices for each demand, in the order of the demands."""
Costs = tuple[int, ...]
"""Charge of a device, or headroom of a pool: one amount for each budget that has headroom."""
Division = tuple[Counts, ...]
"""For each group of devices in a pool: how many devices each demand gets from this group."""


def assign(view: LedgerView, demands: Sequence[Demand], steps: StepBudget) -> list[int] | None:
    """Return disjoint sets of devices, one for each demand, whose charges fit the budgets.

    Return None if no such sets exist. Raises OutOfStepsError if the step budget is spent.
    """
    sets = sorted({devices for devices, _ in demands})
    wanted = tuple([sum(count for s, count in demands if s == each) for each in sets])
    divided = _divide(_pools(view, sets, wanted, steps), wanted, steps)
    if divided is None:
        return None
    assigned = [0] * len(sets)
    for pool, division in divided:
        for group, counts in zip(pool.groups, division, strict=True):
            remaining = group.devices
            for place, count in enumerate(counts):
                part = bitset.lowest(remaining, count)
                remaining ^= part
                assigned[place] |= part
    return _distribute(demands, dict(zip(sets, assigned, strict=True)))


def _distribute(demands: Sequence[Demand], assigned: dict[int, int]) -> list[int]:
    """Return the devices of each demand. Demands for the same set of devices were merged.

    ``assigned``: for each such set, the devices that the merged demand got. The function changes
    this mapping.
    """
    found = []
    for devices, count in demands:
        part = bitset.lowest(assigned[devices], count)
        assigned[devices] ^= part
        found.append(part)
    return found


@attrs.frozen(eq=False)
class _Group:
    """Group of devices in one pool that have the same charge and can serve the same demands."""

    devices: int
    size: int
    """Number of devices in the group, limited to the number that the demands in ``users`` need."""
    cost: Costs
    users: Counts
    """Indexes of the demands that can use the devices."""


@attrs.frozen(eq=False)
class _Pool:
    """Pool with devices for at least one demand."""

    headroom: Costs
    groups: tuple[_Group, ...]

    @property
    def make(self) -> Hashable:
        """Key for caching the result of ``_servable``: pools with equal keys have equal results.

        A key has the headroom of the pool. For each group, it has the number of devices, the charge
        of one device, and the demands that can use the devices.
        """
        return self.headroom, tuple([(g.size, g.cost, g.users) for g in self.groups])


def _pools(view: LedgerView, sets: Sequence[int], wanted: Counts, steps: StepBudget) -> list[_Pool]:
    """Return the pools with devices for at least one demand."""
    kinds: dict[int, list[DeviceKind]] = {}
    for kind in view.inventory.kinds:
        kinds.setdefault(kind.pool, []).append(kind)
    found = []
    for place, own in sorted(kinds.items()):
        headroom = {name: left for name, left in view.headroom[place].items() if left > 0}
        steps.spend(len(own) * len(headroom) // 64)
        groups = _groups(own, list(headroom), sets, wanted)
        if groups:
            found.append(_Pool(tuple(headroom.values()), groups))
    return found


def _groups(
    kinds: Sequence[DeviceKind], names: Sequence[str], sets: Sequence[int], wanted: Counts
) -> tuple[_Group, ...]:
    members: dict[tuple[Costs, Counts], int] = {}
    for kind in kinds:
        for devices, users in _by_users(kind, sets):
            cost = tuple([kind.charge.get(name, 0) for name in names])
            members[cost, users] = members.get((cost, users), 0) | devices
    return tuple(
        _Group(devices, min(devices.bit_count(), sum(wanted[u] for u in users)), cost, users)
        for (cost, users), devices in sorted(members.items())
    )


def _by_users(kind: DeviceKind, sets: Sequence[int]) -> Iterator[tuple[int, Counts]]:
    """Partition the devices of a kind by the demands that can use them.

    Yield each set of devices with the indexes of its demands. Omit devices that no demand can
    use.
    """
    cells: list[tuple[int, Counts]] = [(kind.devices, ())]
    for place, each in enumerate(sets):
        cells = [
            (part, users + more)
            for devices, users in cells
            for part, more in ((devices & each, (place,)), (devices & ~each, ()))
            if part
        ]
    return ((devices, users) for devices, users in cells if users)


_Stage = Mapping[Counts, tuple[Counts, Division]]
"""Keys: the counts that the first n pools can serve together.

Values: the counts that the first n-1 pools contribute to the key, and the division of pool n.
"""


def _divide(
    pools: Sequence[_Pool], wanted: Counts, steps: StepBudget
) -> list[tuple[_Pool, Division]] | None:
    """Return the used pools, each with its division, so that they serve the ``wanted`` counts.

    Return None if all pools together cannot serve these counts.
    """
    if len(pools) == 1 and sum(wanted) <= _MOST_PACKED and _pays_for_one(pools[0]):
        packed = _packed(pools[0], wanted, steps)
        return None if packed is None else [(pools[0], packed)]
    servable: dict[Hashable, Mapping[Counts, Division]] = {}
    nothing = (0,) * len(wanted)
    stages: list[_Stage] = [{nothing: (nothing, ())}]
    for pool in pools:
        if wanted in stages[-1]:
            break
        if pool.make not in servable:
            servable[pool.make] = _servable(pool, wanted, steps)
        stages.append(_stage(stages[-1], servable[pool.make], wanted, steps))
    return _trace(pools, stages, wanted) if wanted in stages[-1] else None


def _pays_for_one(pool: _Pool) -> bool:
    """True if each device charges budgets of the pool, and each budget pays for one device only."""
    for budget, left in enumerate(pool.headroom):
        charges = [(group.cost[budget], group.size) for group in pool.groups]
        # Two devices of a group charge the same.
        costs = sorted([cost for cost, size in charges if cost for _ in range(min(size, 2))])
        if costs and (costs[-1] > left or (len(costs) > 1 and costs[0] + costs[1] <= left)):
            return False
    return all(any(group.cost) for group in pool.groups)


def _packed(pool: _Pool, wanted: Counts, steps: StepBudget) -> Division | None:
    """Return a division of a pool whose budgets pay for one device each; None if there is none."""
    cost = [group.cost for group in pool.groups]
    charging = [
        bitset.of(place for place, each in enumerate(cost) if each[budget])
        for budget in range(len(pool.headroom))
    ]
    users = [
        bitset.of(place for place, group in enumerate(pool.groups) if demand in group.users)
        for demand in range(len(wanted))
    ]
    packing = Packing(charging, users, len(pool.groups), steps)
    picks = packing.find((1 << len(pool.groups)) - 1, wanted)
    if picks is None:
        return None
    found = [[0] * len(wanted) for _ in pool.groups]
    for place, demand in picks:
        found[place][demand] = 1
    return tuple(map(tuple, found))


def _stage(
    before: Iterable[Counts], servable: Mapping[Counts, Division], wanted: Counts, steps: StepBudget
) -> _Stage:
    """Return the next stage: all sums of counts from ``before`` and from one more pool.

    ``before``: counts that the preceding pools can serve. ``servable``: counts that the new pool
    can serve.
    """
    stage: dict[Counts, tuple[Counts, Division]] = {}
    for earlier in before:
        for counts, division in servable.items():
            steps.spend(1)
            # Limit sums to the wanted counts: higher counts do not help, and fewer sums remain.
            together = tuple(map(min, wanted, map(add, earlier, counts)))
            stage.setdefault(together, (earlier, division))
    return {counts: stage[counts] for counts in _undominated(stage, steps)}


def _trace(
    pools: Sequence[_Pool], stages: Sequence[_Stage], wanted: Counts
) -> list[tuple[_Pool, Division]]:
    """Return each used pool with its division, last pool first.

    Follow the ``wanted`` counts from the last stage back to the first.
    """
    found = []
    counts = wanted
    for pool, stage in zip(reversed(pools[: len(stages) - 1]), reversed(stages[1:]), strict=True):
        counts, division = stage[counts]
        found.append((pool, division))
    return found


def _servable(pool: _Pool, wanted: Counts, steps: StepBudget) -> Mapping[Counts, Division]:
    """Return the counts that a pool can serve within its headroom, each with a division.

    Dominated counts are omitted (``_undominated``).
    """
    demands = len(wanted)
    # A state is a vector: the counts served so far, then the headroom that is left. Larger is
    # better in every component, so a state that another state dominates can be dropped.
    states: dict[Counts, Division] = {(0,) * demands + pool.headroom: ()}
    for group, later in _with_later(pool):
        after: dict[Counts, Division] = {}
        for state, division in states.items():
            counts, left = state[:demands], state[demands:]
            missing = tuple(map(sub, wanted, counts))
            for more in _ways(group.users, missing, _room(group, left)):
                steps.spend(1 + len(left) // 32)
                rest = _rest(left, group.cost, sum(more), later)
                after.setdefault(tuple(map(add, counts, more)) + rest, (*division, more))
        states = {state: after[state] for state in _undominated(after, steps)}
    served: dict[Counts, Division] = {}
    for state, division in states.items():
        served.setdefault(state[:demands], division)
    return {counts: served[counts] for counts in _undominated(served, steps)}


def _with_later(pool: _Pool) -> list[tuple[_Group, Sequence[bool]]]:
    """Return each group with one flag per budget: True if a later group charges the budget."""
    found: list[tuple[_Group, Sequence[bool]]] = []
    needed = [False] * len(pool.headroom)
    for group in reversed(pool.groups):
        found.append((group, needed))
        needed = [before or each > 0 for before, each in zip(needed, group.cost, strict=True)]
    return found[::-1]


def _rest(left: Costs, cost: Costs, count: int, later: Sequence[bool]) -> Costs:
    """Return the headroom that is left after ``count`` devices with this cost are charged.

    ``later``: the flags of ``_with_later``. A budget that no later group charges is 0 in the
    result.
    """
    # Zeros make those states equal that differ only in budgets that are no longer needed.
    return tuple(
        [
            have - count * each if needed else 0
            for have, each, needed in zip(left, cost, later, strict=True)
        ]
    )


def _room(group: _Group, left: Costs) -> int:
    """Return the number of devices of the group for which the headroom ``left`` suffices."""
    room = group.size
    for have, each in zip(left, group.cost, strict=True):
        if each:
            room = min(room, have // each)
    return room


def _ways(users: Counts, missing: Counts, room: int) -> Iterator[Counts]:
    """Yield all divisions of at most ``room`` devices among the demands in ``users``, as counts.

    No demand gets more than its number in ``missing``. Larger counts come first.
    """
    if not users:
        yield (0,) * len(missing)
        return
    first = users[0]
    for count in range(min(room, missing[first]), -1, -1):
        for rest in _ways(users[1:], missing, room - count):
            yield (*rest[:first], count, *rest[first + 1 :])


def _undominated(found: Iterable[Counts], steps: StepBudget) -> list[Counts]:
    """Return those vectors that no other vector dominates.

    One vector dominates another if it is at least as large in every component.
    """
    kept: list[Counts] = []
    for counts in sorted(found, reverse=True):
        steps.spend(1 + len(kept) // 5)
        if not any(all(map(ge, other, counts)) for other in kept):
            kept.append(counts)
    return kept
