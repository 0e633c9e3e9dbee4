"""Slots that cannot get in each other's way are searched apart.

What one part of a call makes hard then does not multiply what another part makes hard, and
the first answer of the whole is the first answers of the parts.
"""

from __future__ import annotations

from devicemanager.claims.core.model import Mode
from devicemanager.claims.core.problem import Problem, Slot


def components(problem: Problem) -> list[list[int]]:
    """The slots by component, each ascending, in the order of their first slots."""
    leader = list(range(len(problem.slots)))
    pools = [_charging_pools(problem, slot) for slot in problem.slots]
    for place, slot in enumerate(problem.slots):
        for other in range(place):
            if leader[other] == leader[place]:
                continue
            if _meet(problem.slots[other], slot) or pools[other] & pools[place]:
                old, new = leader[place], leader[other]
                leader = [new if each == old else each for each in leader]
    found: dict[int, list[int]] = {}
    for place, each in enumerate(leader):
        found.setdefault(each, []).append(place)
    return sorted(found.values())


def _meet(one: Slot, other: Slot) -> bool:
    """May a pick for one slot change what the other can have (charges aside)?"""
    if set(one.constraints) & set(other.constraints):
        return True
    if one.claim != other.claim and Mode.ADMIN in (one.mode, other.mode):
        return False
    return bool(one.usable & other.usable)


def _charging_pools(problem: Problem, slot: Slot) -> int:
    """The set of pools that a pick for this slot may charge."""
    if slot.mode is Mode.ADMIN:
        return 0
    found = 0
    for kind in problem.view.inventory.kinds:
        if kind.charge and kind.devices & slot.usable & ~problem.view.in_use:
            found |= 1 << kind.pool
    return found
