"""The functions of the built-in checks, one module per family.

``checks.toml`` in the package above has one row per check: what it requires, does and expects.
The function of check K01 is ``k01`` here; it gets a ``CheckRun`` and returns a measurement, or
raises ``Failed``, ``Warned`` or ``Skipped``. Start reading with ``restarts``, the checks that
most plugins fail. Steps that several families share are in ``steps``.
"""

from __future__ import annotations

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

__all__ = ["MODULES"]

MODULES = {
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
"""Module of each family, by letter."""
