"""The suite of DRA drivers: their checks, and the classes that run these checks."""

from __future__ import annotations

from devicemanager.conformance.drivers.checks import DRIVER_FAMILIES, driver_checks
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.drivers.stage import DriverStage
from devicemanager.conformance.outcomes import Profile
from devicemanager.conformance.suite import Suite

__all__ = ["DRIVERS"]

DRIVERS = Suite(
    program="DRA driver",
    first="DR01",
    restarts="DK",
    families=DRIVER_FAMILIES,
    checks=driver_checks,
    least={
        Profile.CORE: {"DR": 3, "DC": 9, "DF": 3, "DS": 4},
        Profile.RESILIENT: {"DK": 3, "DL": 1},
        Profile.COMPLETE: {"DC": 12, "DK": 5, "DS": 6, "DL": 3},
    },
    stage=DriverStage,
    new_run=DriverRun,
)
"""The suite of DRA drivers, to pass as the argument ``suite`` of ``conformance.run``."""
