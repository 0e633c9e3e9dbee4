"""Chaos: faults chosen at random from one seed.

The chosen faults are ordinary faults, each with a probability and a separate seed. The same seed
therefore always chooses the same faults, and these fire at the same matches. Kinds and values
come from the field ``chaos`` in the table of kinds. Faults that last until they are cleared are
excluded: a plugin that retries must be able to succeed.
"""

from __future__ import annotations

import random

from devicemanager.faults.fault import Fault
from devicemanager.faults.kinds import KINDS, Kind

__all__ = ["chaos"]

_PROBABILITIES = (0.05, 0.1, 0.2, 0.3)
_FEWEST, _MOST = 6, 12
_TIMES = (1, 2, 3)
"""Values for the option ``times`` of an action. With a kubelet that never stops restarting, a
plugin could not succeed."""


def chaos(seed: int) -> tuple[Fault, ...]:
    """Return 6 to 12 faults of different kinds, chosen at random. Each fault has a probability.

    The same ``seed`` always gives the same faults.
    """
    # A text as seed, so that other uses of the same number do not draw the same values.
    source = random.Random(f"chaos/{seed}")
    # Sorted, so that the order of the table's rows does not change the faults of a seed.
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
        # Skip up to two matches, so that some faults fire after the plugin has registered.
        after=source.randint(0, 2),
        probability=source.choice(_PROBABILITIES),
        seed=source.randrange(1 << 31),
        **options,
    )
