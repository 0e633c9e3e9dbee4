"""Values of the suite: severity, scene and outcome of a check, and the exceptions that decide the
outcome."""

from __future__ import annotations

from enum import StrEnum

import attrs

from devicemanager.core.errors import DeviceManagerError

__all__ = [
    "RESTART",
    "CheckError",
    "Failed",
    "HookFailed",
    "Line",
    "Lost",
    "Outcome",
    "Profile",
    "Scene",
    "Severity",
    "Skipped",
    "Warned",
]


class CheckError(DeviceManagerError):
    """Error because of which the suite cannot run, such as an invalid option or a plugin that never
    registers.

    The text is for the user.
    """


class HookFailed(CheckError):
    """Error of a hook that failed, such as a command with a typo. This says nothing about the
    plugin."""

    def __init__(self, hook: str, text: str) -> None:
        super().__init__(f"the hook {hook} {text}")
        self.hook = hook


class Severity(StrEnum):
    """Importance of a check."""

    MUST = "MUST"
    """A plugin that fails the check breaks the contract with the kubelet."""
    SHOULD = "SHOULD"
    """A plugin that fails the check causes problems in real clusters."""
    INFO = "INFO"
    """The result is reported, but is never a failure."""


class Outcome(StrEnum):
    """Result of a check."""

    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    WAIVED = "waived"
    ERROR = "error"
    """The suite itself failed to run the check."""


class Scene(StrEnum):
    """State of the kubelet and the plugin in which a check begins."""

    REGISTERED = "registered"
    """A kubelet and a registered plugin. Several checks use them one after another."""
    IDLE = "idle"
    """A kubelet and a registered plugin that have been idle for ``Limits.idle_seconds``."""
    OWN = "own"
    """Nothing is running. The check starts its own kubelet and plugin. Other checks do not use
    them."""


class Profile(StrEnum):
    """Set of checks that a plugin must pass to earn a badge."""

    CORE = "core"
    """All checks of severity MUST, except the checks about restarts and about the life cycle."""
    RESILIENT = "resilient"
    """All checks of severity MUST, including the checks about restarts and about the life cycle."""
    COMPLETE = "complete"
    """All checks of severity MUST or SHOULD."""


class Failed(AssertionError):
    """Exception that a check raises if the plugin does not meet the check's expectation. The text
    says what was seen."""

    def __init__(self, text: str = "", *, cause: str = "", symptom: str = "") -> None:
        super().__init__(text)
        self.cause = cause
        """ID of another check that may fail because of the same problem. If it fails in the same
        run, this failure becomes a skip whose text refers to the other check."""
        self.symptom = symptom
        """Symptom of this failure on a node, if it is not the symptom in ``Check.production``;
        otherwise empty."""


class Lost(Failed):
    """Failure of a check because the plugin did not register, or did not register again."""


class Warned(AssertionError):
    """Exception that a check raises if the plugin only barely meets the check's requirement. The
    text says what was seen."""


class Skipped(Exception):
    """Exception that a check raises if it does not apply to the plugin or cannot run here. The text
    has the reason."""

    def __init__(self, text: str = "", *, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause
        """ID of another check that may fail because of the same problem. If it fails or was not
        selected, the text of this skip refers to the other check."""


# Reports find restarts by this text, and shorten a timeline that has many of them.
RESTART = "restart the kubelet"
"""Text of the line that a kubelet restart adds to the timeline of a check."""


@attrs.frozen
class Line:
    """One line of a check's timeline."""

    time: float
    """Seconds since the check began."""
    source: str
    """Origin of the line: ``suite``, ``kubelet``, ``call`` or ``plugin``."""
    text: str
