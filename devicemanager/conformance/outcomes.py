"""Values of the suite: how a check begins and ends, and how much it matters."""

from __future__ import annotations

from enum import StrEnum

import attrs

from devicemanager.core.errors import DeviceManagerError

__all__ = [
    "CheckError",
    "Failed",
    "Line",
    "Outcome",
    "Profile",
    "Scene",
    "Severity",
    "Skipped",
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


class Failed(AssertionError):
    """The plugin does not do what the check expects. The text says what was seen."""


class Warned(AssertionError):
    """The plugin meets the requirement, but barely. The text says what was seen."""


class Skipped(Exception):
    """The check does not apply to this plugin, or cannot run here. The text says why."""


@attrs.frozen
class Line:
    """One line of a timeline."""

    time: float
    """Seconds since the check began."""
    source: str
    """``suite``, ``kubelet``, ``call`` or ``plugin``."""
    text: str
