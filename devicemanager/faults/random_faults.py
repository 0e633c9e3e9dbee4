"""Chaos: faults chosen at random from one seed.

The chosen faults are ordinary faults, each with a probability and a separate seed. The same seed
therefore chooses the same faults, and they decide the same at the same matches. Kinds
and values come from the column ``chaos`` of the table of kinds. Faults that last until they
are cleared are excluded: a plugin that retries must be able to succeed.
"""

from __future__ import annotations

import random

from devicemanager.faults.fault import Fault
from devicemanager.faults.kinds import KINDS, Kind

__all__ = ["chaos"]

_PROBABILITIES = (0.05, 0.1, 0.2, 0.3)
_FEWEST, _MOST = 6, 12
_TIMES = (1, 2, 3)
"""Limits of how often an action is executed: a kubelet that keeps restarting tests nothing."""


def chaos(seed: int) -> tuple[Fault, ...]:
    """Return the faults of a seed: 6 to 12 of different kinds, each with a probability."""
    # A text as seed, so that other uses of the same number do not draw the same values.
    source = random.Random(f"chaos/{seed}")
    names = sorted(kind.name for kind in KINDS.values() if kind.chaos is not None)
    chosen = source.sample(names, source.randint(_FEWEST, _MOST))
    return tuple(_choose(KINDS[name], source) for name in chosen)


def _choose(kind: Kind, source: random.Random) -> Fault:
    choices = kind.chaos or {}
    options = {name: source.choice(values) for name, values in choices.items()}
    if "at" in options:
        options["times"] = source.choice(_TIMES)
    return Fault.of(
        kind.name,
        # Sometimes a few matches later, when the plugin is already registered.
        after=source.randint(0, 2),
        probability=source.choice(_PROBABILITIES),
        seed=source.randrange(1 << 31),
        **options,
    )
