"""How a check can end, and how much that matters."""

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
    """The suite cannot run like this: a wrong option, or a plugin that never comes up. The text
    is for the user."""


class Severity(StrEnum):
    """How much a check matters."""

    MUST = "MUST"
    """The contract with the kubelet breaks without it."""
    SHOULD = "SHOULD"
    """Real clusters suffer without it."""
    INFO = "INFO"
    """It is reported and never fails."""


class Outcome(StrEnum):
    """What came of a check."""

    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    WAIVED = "waived"
    ERROR = "error"
    """The suite itself could not carry it out."""


class Scene(StrEnum):
    """What a check finds when it begins."""

    REGISTERED = "registered"
    """A kubelet and a registered plugin that other checks use as well, one after another."""
    IDLE = "idle"
    """A kubelet and a plugin that have been left alone for ``Limits.idle_seconds``."""
    OWN = "own"
    """Nothing: the check starts what it needs, for itself alone."""


class Profile(StrEnum):
    """Which checks a plugin has to pass to bear a badge."""

    CORE = "core"
    RESILIENT = "resilient"
    COMPLETE = "complete"


class Failed(AssertionError):
    """The plugin does not do what the check expects. The text says what was seen."""


class Warned(AssertionError):
    """The plugin does what it must, but not well. The text says what was seen."""


class Skipped(Exception):
    """The check does not apply to this plugin, or cannot be made here. The text says why."""


@attrs.frozen
class Line:
    """One line of a timeline."""

    time: float
    """Seconds since the check began."""
    source: str
    """``suite``, ``kubelet``, ``call`` or ``plugin``."""
    text: str
