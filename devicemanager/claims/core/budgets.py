"""Whole devices that are charged to pools: can all demands be served within the budgets?

Budgets are local to a pool. So for each pool the vectors of counts that it can serve are
found first (only those that no other one outdoes), pools of equal make sharing the work, and
then they are added up, pool by pool. The problem is NP-hard (devices as vertices, budgets of
one as edges: an independent set), so all of it counts steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import add, ge, sub

import attrs

from devicemanager.claims.core.inventory import Kind
from devicemanager.claims.core.max_flow import Demand
from devicemanager.claims.core.step_budget import Steps
from devicemanager.claims.core.view import View
from devicemanager.core import bitset

Counts = tuple[int, ...]
"""How many devices each demand gets."""
Costs = tuple[int, ...]
"""What is charged, by budget."""
Division = tuple[Counts, ...]
"""For each group of a pool, how many of its devices each demand gets."""


def assign(view: View, demands: Sequence[Demand], steps: Steps) -> list[int] | None:
    """A set of devices for each demand, disjoint and within the budgets; None if there is no way.

    Demands for the same set of devices are one while the counts are searched.
    """
    sets = sorted({devices for devices, _ in demands})
    wanted = tuple([sum(count for s, count in demands if s == each) for each in sets])
    divided = _divide(_pools(view, sets, wanted, steps), wanted, steps)
    if divided is None:
        return None
    taken = [0] * len(sets)
    for pool, division in divided:
        for group, counts in zip(pool.groups, division, strict=True):
            rest = group.devices
            for place, count in enumerate(counts):
                part = bitset.lowest(rest, count)
                rest ^= part
                taken[place] |= part
    return _distribute(demands, dict(zip(sets, taken, strict=True)))


def _distribute(demands: Sequence[Demand], taken: dict[int, int]) -> list[int]:
    found = []
    for devices, count in demands:
        part = bitset.lowest(taken[devices], count)
        taken[devices] ^= part
        found.append(part)
    return found


@attrs.frozen(eq=False)
class _Group:
    """Devices of a pool that cost the same and that the same demands may use."""

    devices: int
    size: int
    """Never more than all demands together can use."""
    cost: Costs
    users: Counts
    """Places of these demands."""


@attrs.frozen(eq=False)
class _Pool:
    headroom: Costs
    groups: tuple[_Group, ...]

    @property
    def make(self) -> Hashable:
        """Equal for pools that can serve the same."""
        return self.headroom, tuple([(g.size, g.cost, g.users) for g in self.groups])


def _pools(view: View, sets: Sequence[int], wanted: Counts, steps: Steps) -> list[_Pool]:
    """The pools that have devices for any of the demands."""
    kinds: dict[int, list[Kind]] = {}
    for kind in view.inventory.kinds:
        kinds.setdefault(kind.pool, []).append(kind)
    found = []
    for place, own in sorted(kinds.items()):
        headroom = {name: left for name, left in view.headroom[place].items() if left > 0}
        steps.work(len(own) * len(headroom) // 64)
        groups = _groups(own, list(headroom), sets, wanted)
        if groups:
            found.append(_Pool(tuple(headroom.values()), groups))
    return found


def _groups(
    kinds: Sequence[Kind], names: Sequence[str], sets: Sequence[int], wanted: Counts
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


def _by_users(kind: Kind, sets: Sequence[int]) -> Iterator[tuple[int, Counts]]:
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
"""What the pools so far can serve, to what those before the last serve of it, and how it does."""


def _divide(
    pools: Sequence[_Pool], wanted: Counts, steps: Steps
) -> list[tuple[_Pool, Division]] | None:
    """What each pool serves, so that together it is ``wanted``."""
    known: dict[Hashable, Mapping[Counts, Division]] = {}
    nothing = (0,) * len(wanted)
    stages: list[_Stage] = [{nothing: (nothing, ())}]
    for pool in pools:
        if wanted in stages[-1]:
            break
        if pool.make not in known:
            known[pool.make] = _servable(pool, wanted, steps)
        stages.append(_stage(stages[-1], known[pool.make], wanted, steps))
    return _trace(pools, stages, wanted) if wanted in stages[-1] else None


def _stage(
    before: Iterable[Counts], servable: Mapping[Counts, Division], wanted: Counts, steps: Steps
) -> _Stage:
    stage: dict[Counts, tuple[Counts, Division]] = {}
    for earlier in before:
        for counts, division in servable.items():
            steps.work(1)
            together = tuple(map(min, wanted, map(add, earlier, counts)))
            stage.setdefault(together, (earlier, division))
    return {counts: stage[counts] for counts in _undominated(stage, steps)}


def _trace(
    pools: Sequence[_Pool], stages: Sequence[_Stage], wanted: Counts
) -> list[tuple[_Pool, Division]]:
    found = []
    counts = wanted
    for pool, stage in zip(reversed(pools[: len(stages) - 1]), reversed(stages[1:]), strict=True):
        counts, division = stage[counts]
        found.append((pool, division))
    return found


def _servable(pool: _Pool, wanted: Counts, steps: Steps) -> Mapping[Counts, Division]:
    """The largest counts that the pool can serve within its budget, with how it does."""
    demands = len(wanted)
    # What is served, then what is left of the budget: of both, more is better.
    states: dict[Counts, Division] = {(0,) * demands + pool.headroom: ()}
    for group, later in _with_later(pool):
        after: dict[Counts, Division] = {}
        for state, division in states.items():
            counts, left = state[:demands], state[demands:]
            missing = tuple(map(sub, wanted, counts))
            for more in _ways(group.users, missing, _room(group, left)):
                steps.work(1 + len(left) // 32)
                rest = _rest(left, group.cost, sum(more), later)
                after.setdefault(tuple(map(add, counts, more)) + rest, (*division, more))
        states = {state: after[state] for state in _undominated(after, steps)}
    served: dict[Counts, Division] = {}
    for state, division in states.items():
        served.setdefault(state[:demands], division)
    return {counts: served[counts] for counts in _undominated(served, steps)}


def _with_later(pool: _Pool) -> list[tuple[_Group, Sequence[bool]]]:
    """Each group, with the budgets that a later group may need."""
    found: list[tuple[_Group, Sequence[bool]]] = []
    needed = [False] * len(pool.headroom)
    for group in reversed(pool.groups):
        found.append((group, needed))
        needed = [before or each > 0 for before, each in zip(needed, group.cost, strict=True)]
    return found[::-1]


def _rest(left: Costs, cost: Costs, count: int, later: Sequence[bool]) -> Costs:
    """What is left of the budgets; of one that nobody asks for any more, 0."""
    return tuple(
        [
            have - count * each if needed else 0
            for have, each, needed in zip(left, cost, later, strict=True)
        ]
    )


def _room(group: _Group, left: Costs) -> int:
    """How many devices of the group the rest of the budget pays for."""
    room = group.size
    for have, each in zip(left, group.cost, strict=True):
        if each:
            room = min(room, have // each)
    return room


def _ways(users: Counts, missing: Counts, room: int) -> Iterator[Counts]:
    """All ways to give up to ``room`` devices to the demands in ``users``, most first."""
    if not users:
        yield (0,) * len(missing)
        return
    first = users[0]
    for count in range(min(room, missing[first]), -1, -1):
        for rest in _ways(users[1:], missing, room - count):
            yield (*rest[:first], count, *rest[first + 1 :])


def _undominated(found: Iterable[Counts], steps: Steps) -> list[Counts]:
    """Without those that another one reaches or exceeds in every place."""
    kept: list[Counts] = []
    for counts in sorted(found, reverse=True):
        steps.work(1 + len(kept) // 5)
        if not any(all(map(ge, other, counts)) for other in kept):
            kept.append(counts)
    return kept
