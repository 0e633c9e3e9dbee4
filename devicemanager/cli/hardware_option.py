"""Virtual hardware on the command line: ``gpu=2,nic=1,fpga=2``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicemanager.claims.simulated import SimulatedHardware

FORM = "SORT=COUNT,…"
EXAMPLE = "gpu=2,nic=1,fpga=2"
_SORTS = ("gpu", "nic", "fpga")
_MOST = 1000


def hardware_option(text: str) -> SimulatedHardware:
    """How many cards of which sort; none of a sort that is not named."""
    counts: dict[str, int] = {}
    for part in text.split(","):
        sort, _, count = part.partition("=")
        if sort not in _SORTS or not count.isdecimal() or int(count) > _MOST:
            raise argparse.ArgumentTypeError(
                f"{part!r} is not like {EXAMPLE}: {', '.join(_SORTS)}, each with up to {_MOST}"
            )
        if sort in counts:
            raise argparse.ArgumentTypeError(f"{sort} is given twice")
        counts[sort] = int(count)
    from devicemanager.claims.simulated import SimulatedHardware

    return SimulatedHardware(**{sort: counts.get(sort, 0) for sort in _SORTS})
