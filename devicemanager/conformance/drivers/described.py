"""Definition of a check of drivers: a row of ``checks.toml`` joined with its function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.registry import Check, described

__all__ = ["TABLE", "driver_check"]

TABLE = Path(__file__).with_name("checks.toml")


def driver_check(run: Callable[[DriverRun], str | None]) -> Check:
    """Return a Check that runs the decorated function. The Check's texts are in ``checks.toml``.

    The function's name must be the check's ID in lower case, such as ``dc01``.
    """
    return described(TABLE, run)
