"""Functions of the built-in checks, one module per family.

``checks.toml`` in the parent package has one row per check: what it requires, does and expects. The
function of a check has its ID as name: ``k01`` for check K01. It gets a ``CheckRun`` and returns a
measurement, or raises ``Failed``, ``Warned`` or ``Skipped``. Start reading with ``restarts``, the
checks that most plugins fail. Steps that several families share are in ``steps``.
"""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.conformance.checks import (
    allocate,
    lifecycle,
    listandwatch,
    options,
    preference,
    prestart,
    registration,
    restarts,
    topology,
)
from devicemanager.conformance.registry import FAMILIES, Check, ids, selected

__all__ = ["all_checks", "select"]

_MODULES = {
    "R": registration,
    "K": restarts,
    "W": listandwatch,
    "T": topology,
    "O": options,
    "A": allocate,
    "P": preference,
    "S": prestart,
    "L": lifecycle,
}
"""Module of each family of checks, by the letter of the family."""


def all_checks() -> tuple[Check, ...]:
    """Return all built-in checks, sorted by family and number."""
    return tuple(getattr(_MODULES[id_[0]], id_.lower()) for id_ in ids())


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """Return the built-in checks in ``only`` (all by default), without those in ``skip``.

    Both arguments contain IDs of checks or letters of families. Raises CheckError for any other
    name.
    """
    return selected(all_checks(), FAMILIES, only, skip)
