"""What differs between checks of device plugins and of DRA drivers: the class ``Suite``."""

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
    """Letters of the family of checks about restarts."""
    families: Mapping[str, str]
    """Title of each family, by its letters."""
    checks: Callable[[], Sequence[Check]]
    least: Mapping[Profile, Mapping[str, int]]
    """Minimum number of checks that must be carried out, by profile and family.

    Skipped checks do not count towards a profile. A good plugin without hooks, without optional
    calls and with one device reaches these numbers.
    """
    stage: Callable[..., Stage]
    """Function that creates a stage. It has the parameters of the class ``Stage``."""
    new_run: Callable[[Stage, tuple[str, ...], str], SuiteRun]
    """Function that creates the run of a check. It has the parameters of the class ``SuiteRun``."""

    @property
    def heading(self) -> str:
        """Heading of a report."""
        return f"{self.program[0].upper()}{self.program[1:]} conformance"

    @property
    def registration(self) -> str:
        """Letters of the family of checks about registration."""
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
