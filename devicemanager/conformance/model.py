"""Values of the suite: what a check is, how it can end, and what a report says about it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from devicemanager.core.errors import DeviceManagerError

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun

__all__ = [
    "Check",
    "CheckError",
    "CheckFunction",
    "Failed",
    "Line",
    "Outcome",
    "Profile",
    "Scene",
    "Severity",
    "Skipped",
    "Verdict",
    "Warned",
]


class CheckError(DeviceManagerError):
    """The suite cannot run: an invalid option, or a plugin that never registers. The text is for
    the user."""


class Severity(StrEnum):
    """How much a check matters."""

    MUST = "MUST"
    """Without it, the contract with the kubelet is broken."""
    SHOULD = "SHOULD"
    """Without it, real clusters have problems."""
    INFO = "INFO"
    """Reported, but never a failure."""


class Outcome(StrEnum):
    """Result of a check."""

    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    WAIVED = "waived"
    ERROR = "error"
    """The suite itself could not run the check."""


class Scene(StrEnum):
    """State in which a check begins."""

    REGISTERED = "registered"
    """A kubelet and a registered plugin, shared with other checks that run one after another."""
    IDLE = "idle"
    """A kubelet and a plugin that have been idle for ``Limits.idle_seconds``."""
    OWN = "own"
    """Nothing is started: the check starts what it needs, and shares it with no other check."""


class Profile(StrEnum):
    """Set of checks that a plugin must pass to earn a badge."""

    CORE = "core"
    """Every MUST of R, W, T, O, A, P and S."""
    RESILIENT = "resilient"
    """Core, and every MUST of K and L."""
    COMPLETE = "complete"
    """Every MUST and every SHOULD."""


_RESILIENCE = frozenset("KL")


class Failed(AssertionError):
    """The plugin does not do what the check expects. The text says what was seen."""


class Warned(AssertionError):
    """The plugin meets the requirement, but barely. The text says what was seen."""


class Skipped(Exception):
    """The check does not apply to this plugin, or cannot run here. The text says why."""


CheckFunction: TypeAlias = Callable[["CheckRun"], str | None]
"""Runs a check. Returns a measurement for the report, or None. Raises ``Failed``, ``Warned`` or
``Skipped``."""


@attrs.frozen
class Check:
    """One check."""

    id: str
    """A letter for the family and two digits, such as ``K01``."""
    severity: Severity
    title: str
    """The requirement, in one line; its subject is the plugin."""
    does: str
    """Steps of the suite."""
    expects: str
    """What must be seen; names of limits stand for their values."""
    production: str
    """Symptom on a node when the check fails."""
    links: tuple[str, ...]
    """Addresses of the rule and of public issues that show the symptom."""
    scene: Scene
    hooks: tuple[str, ...]
    """Hooks that the check requires."""
    needs_registration: bool
    """False if the check is also meaningful for a plugin that does not register."""
    run: CheckFunction = attrs.field(eq=False, repr=False)

    @property
    def family(self) -> str:
        """Letter of the family."""
        return self.id[0]

    def belongs_to(self, profile: Profile) -> bool:
        """True if a plugin must pass this check for the profile."""
        match self.severity, profile:
            case Severity.MUST, Profile.CORE:
                return self.family not in _RESILIENCE
            case Severity.MUST, _:
                return True
            case Severity.SHOULD, Profile.COMPLETE:
                return True
        return False

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON, as described in docs/json.md."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "title": self.title,
            "does": self.does,
            "expects": self.expects,
            "production": self.production,
            "links": list(self.links),
            "hooks": list(self.hooks),
        }


@attrs.frozen
class Line:
    """One line of a timeline."""

    time: float
    """Seconds since the check began."""
    source: str
    """``suite``, ``kubelet``, ``call`` or ``plugin``."""
    text: str


@attrs.frozen
class Verdict:
    """Result of one check, with everything needed to understand it."""

    check: Check
    outcome: Outcome
    seen: str = ""
    """What was seen; the reason for a skip; for a waived failure also the waiver's reason."""
    seconds: float = 0.0
    timeline: tuple[Line, ...] = ()
    """Steps of the suite, events and calls; only for failures, warnings and errors."""
    output: tuple[str, ...] = ()
    """The plugin's last lines of output during the check."""
    reproduce: str = ""
    """Command that runs only this check, with the same options."""

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON, as described in docs/json.md."""
        check = self.check
        return {
            "id": check.id,
            "severity": check.severity.value,
            "title": check.title,
            "outcome": self.outcome.value,
            "seen": self.seen,
            "does": check.does,
            "expects": check.expects,
            "production": check.production,
            "links": list(check.links),
            "seconds": round(self.seconds, 3),
            "timeline": [attrs.asdict(line) for line in self.timeline],
            "output": list(self.output),
            "reproduce": self.reproduce,
        }
