"""Orders in which plugins register and pods are admitted after a kubelet start."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TypeAlias

__all__ = ["Order", "orders"]

Order: TypeAlias = tuple[str, ...]
"""Resources and pod UIDs, in the order in which the plugins of these resources register and the
pods are admitted."""

PERMUTED = 6
"""Maximum total number of plugins and pods for which all orders are tried. Six have 720 orders."""


def orders(
    plugins: Sequence[str], pods: Sequence[str], most: int, seed: int, permuted: int = PERMUTED
) -> list[Order]:
    """Return the orders to try: all orders, or a sample of ``most`` orders.

    All orders are returned if there are at most ``permuted`` plugins and pods together. A sample
    always contains the two extremes, even if ``most`` is 1: all plugins first, and all pods first.
    Without plugins or without pods, the order does not matter, and one order is returned.
    """
    if not plugins or not pods:
        return [(*plugins, *pods)]
    everything = (*plugins, *pods)
    if len(everything) <= permuted:
        return list(itertools.permutations(everything))
    # In these two orders, pods find all plugins registered, or none of them.
    extremes = [everything, (*pods, *plugins)]
    return [*extremes, *itertools.islice(_shuffled(everything, seed), max(most - 2, 0))]


def is_complete(plugins: Sequence[str], pods: Sequence[str], permuted: int = PERMUTED) -> bool:
    """False if ``orders`` returns only a sample of the possible orders; True otherwise."""
    return not plugins or not pods or len(plugins) + len(pods) <= permuted


def _shuffled(everything: Order, seed: int) -> Iterator[Order]:
    # A separate generator, because equal seeds must give equal samples. Other code can draw from
    # the generator of the module `random`.
    chosen = random.Random(seed)
    while True:
        yield tuple(chosen.sample(everything, len(everything)))
