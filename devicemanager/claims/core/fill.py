"""How the devices of a shared request share what it asks for: in whole blocks."""

from __future__ import annotations

from collections.abc import Sequence


def fill(offers: Sequence[tuple[int, int]], amount: int) -> list[int] | None:
    """What each device gives of one resource, so that together it is at least ``amount``.

    ``offers``: for each device in order, its free blocks (1 or more) and the size of one, in
    nano units. Each gives one block first; the rest is filled in device order. None if
    all together is too little.
    """
    given = [block for _, block in offers]
    missing = amount - sum(given)
    for place, (blocks, block) in enumerate(offers):
        if missing <= 0:
            break
        more = min(blocks - 1, -(-missing // block))
        given[place] += more * block
        missing -= more * block
    return given if missing <= 0 else None
