"""Chaos: faults picked at random, all of them from one seed.

What is picked are ordinary faults with a probability and a seed of their own. So the same
seed picks the same ones, and they decide the same on the same occasions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from devicemanager.faults.fault import Fault
from devicemanager.faults.kinds import ERRORS, RPCS

__all__ = ["chaos"]

_CODES = ("INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN")
_SHORT = (0.05, 0.2, 1.0)
_PLUGIN_POINTS = ("registered", "list", *RPCS)
_PROBABILITIES = (0.05, 0.1, 0.2, 0.3)

_CHOICES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "reject-register": {"code": _CODES},
    "delay-register": {"seconds": (*_SHORT, 9.0)},
    "drop-register": {"when": ("before", "after")},
    "reject-notification": {},
    "fail-notification": {"code": _CODES},
    "stop-reading": {"seconds": _SHORT},
    "fail-call": {"rpc": RPCS, "when": ("before", "after"), "code": _CODES},
    "delay-call": {"rpc": RPCS, "when": ("before", "after"), "seconds": _SHORT},
    "cut-call": {"rpc": RPCS, "when": ("before", "during", "after")},
    "fail-checkpoint": {"error": ERRORS},
    "delay-checkpoint": {"seconds": _SHORT},
    "lose-checkpoint": {},
    "fail-pod-resources": {"code": _CODES},
    "delay-pod-resources": {"seconds": _SHORT},
    "empty-pod-resources": {},
    "limit-pod-resources": {},
    "end-list-stream": {"at": ("list", *RPCS)},
    "delete-plugin-socket": {"at": _PLUGIN_POINTS},
    "recreate-kubelet-socket": {"at": _PLUGIN_POINTS},
    "restart": {"at": _PLUGIN_POINTS, "keep_sockets": (False, True)},
    "restart-twice": {"at": _PLUGIN_POINTS, "gap": (0.0, 0.01, 0.05, 0.3, 1.0)},
    "away": {"at": _PLUGIN_POINTS, "seconds": (0.5, 5.0)},
}
"""What may be picked, and of each option which values. Faults that would last until they are
cleared are not among them: a plugin must be able to come through."""

_FEWEST, _MOST = 6, 12
_TIMES = (1, 2, 3)
"""How often an action is executed at most: a kubelet that always restarts is no test."""


def chaos(seed: int) -> tuple[Fault, ...]:
    """The faults of a seed: 6 to 12 of different kinds, each with a probability."""
    source = random.Random(f"chaos/{seed}")
    kinds = source.sample(sorted(_CHOICES), source.randint(_FEWEST, _MOST))
    return tuple(_pick(kind, source) for kind in kinds)


def _pick(kind: str, source: random.Random) -> Fault:
    options = {name: source.choice(values) for name, values in _CHOICES[kind].items()}
    if "at" in options:
        options["times"] = source.choice(_TIMES)
    return Fault.of(
        kind,
        after=source.randint(0, 2),
        probability=source.choice(_PROBABILITIES),
        seed=source.randrange(1 << 31),
        **options,
    )
