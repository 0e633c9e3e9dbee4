"""Functions of the checks of drivers, one module per family.

``checks.toml`` in the parent package has one row per check. The name of a check's function is the
check's ID in lower case. The function gets a ``DriverRun``. Start reading with ``claims``.
"""

from __future__ import annotations

from devicemanager.conformance.drivers.checks import (
    cdi,
    claims,
    health,
    lifecycle,
    nri,
    registration,
    restarts,
    slices,
)
from devicemanager.conformance.drivers.described import TABLE
from devicemanager.conformance.registry import Check, rows

__all__ = ["DRIVER_FAMILIES", "driver_checks"]

DRIVER_FAMILIES = {
    "DR": "Registration",
    "DC": "Claims",
    "DF": "CDI files",
    "DK": "Restarts, reboots and upgrades",
    "DS": "ResourceSlices",
    "DH": "Health",
    "DL": "Life cycle",
    "DN": "NRI",
}
"""Title of each family of checks of drivers, by the family's letters."""

_MODULES = {
    "DR": registration,
    "DC": claims,
    "DF": cdi,
    "DK": restarts,
    "DS": slices,
    "DH": health,
    "DL": lifecycle,
    "DN": nri,
}


def driver_checks() -> tuple[Check, ...]:
    """Return all checks of drivers, sorted by family and number."""
    return tuple(getattr(_MODULES[id_[:2]], id_.lower()) for id_ in rows(TABLE))
