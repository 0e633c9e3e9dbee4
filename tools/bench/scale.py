"""How much a run measures."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Scale:
    """Sizes and counts of a run."""

    sizes: tuple[tuple[int, int], ...]
    """Devices and pods of the admission and List cases."""
    repeats: int
    """Fresh processes for each case; their samples count together."""
    samples: int
    """How often something is done that costs about a millisecond."""
    starts: int
    """How often a process is started."""
    devices: int
    """The devices of the cases about lists and hints."""
    many_devices: int
    """The devices of the largest list."""
    pods: int
    """The devices and pods of the cases about topology, release and memory."""
    entries: int
    """The entries of the checkpoint that a restart reads."""
    plugins: int
    """How many plugins register at once."""
    worst_lists: int
    """How many kinds of lists are tried that are made to take long."""


FULL: Final = Scale(
    sizes=((8, 8), (110, 110), (1000, 1000), (10_000, 1000), (5000, 5000)),
    repeats=3,
    samples=300,
    starts=7,
    devices=10_000,
    many_devices=100_000,
    pods=1000,
    entries=5000,
    plugins=50,
    worst_lists=20,
)

SCALES: Final = {
    "full": FULL,
    "quick": attrs.evolve(
        FULL,
        sizes=((8, 8), (110, 110), (1000, 1000)),
        repeats=1,
        samples=100,
        starts=3,
        pods=300,
    ),
    "tiny": Scale(
        sizes=((2, 2),),
        repeats=1,
        samples=2,
        starts=1,
        devices=20,
        many_devices=30,
        pods=8,
        entries=3,
        plugins=2,
        worst_lists=1,
    ),
}
"""By name, as ``--scale`` takes them. ``tiny`` only shows that everything runs."""
