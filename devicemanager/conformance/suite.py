"""The class ``Suite``: what differs between the checks of device plugins and the checks of DRA
drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks import all_checks
from devicemanager.conformance.outcomes import Profile
from devicemanager.conformance.registry import FAMILIES, Check
from devicemanager.conformance.stage import Stage
from devicemanager.conformance.suite_run import SuiteRun

__all__ = ["PLUGINS", "Suite"]


@attrs.frozen
class Suite:
    """One kind of program under test, with its checks. It creates the stages and ``SuiteRun``
    objects for these checks."""

    program: str
    """The kind of program, such as ``device plugin``, for the heading of a report."""
    first: str
    """ID of the check of registration. If it fails, most other checks are skipped."""
    restarts: str
    """The letters with which the IDs of the checks about restarts begin, such as ``K``."""
    families: Mapping[str, str]
    """Title of each family of checks, by the letters with which the checks' IDs begin."""
    checks: Callable[[], Sequence[Check]]
    least: Mapping[Profile, Mapping[str, int]]
    """For each profile, the minimum number of checks that must run in each family. The keys of the
    inner mappings are the letters of families.

    With fewer checks, a plugin does not pass the profile. Skipped checks do not count. A good
    plugin reaches the numbers even without hooks, without optional calls and with only one device.
    """
    stage: Callable[..., Stage]
    """Function that takes the arguments of the class ``Stage`` and returns a stage: a mock kubelet
    with the program under test."""
    new_run: Callable[[Stage, tuple[str, ...], str], SuiteRun]
    """Function that takes the arguments of the class ``SuiteRun`` and returns the run of one
    check."""

    @property
    def heading(self) -> str:
        """Heading of a report, such as ``Device plugin conformance``."""
        return f"{self.program[0].upper()}{self.program[1:]} conformance"

    @property
    def registration(self) -> str:
        """The letters with which the IDs of the checks about registration begin, such as ``R``."""
        return next(each.family for each in self.checks() if each.id == self.first)


PLUGINS = Suite(
    program="device plugin",
    first="R01",
    restarts="K",
    families=FAMILIES,
    checks=all_checks,
    least={
        Profile.CORE: {"R": 6, "W": 6, "O": 1, "A": 10},
        Profile.RESILIENT: {"K": 6, "L": 3},
        Profile.COMPLETE: {"R": 9, "K": 10, "W": 7, "A": 11, "L": 6},
    },
    stage=Stage,
    new_run=CheckRun,
)
"""The suite of device plugins, which ``conformance.run`` uses by default."""
