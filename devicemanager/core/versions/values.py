"""What a behaviour can be where it is more than yes or no."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["HealthCheck", "Level", "MergeRule", "StartRemoves"]


class Level(StrEnum):
    """How stable a topology manager policy option is; alpha and beta have a gate."""

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


class StartRemoves(StrEnum):
    """What a start removes from the plugin directory."""

    ALL_BUT_DIRECTORIES = "everything but directories and the checkpoint"
    SOCKETS = "sockets"


class MergeRule(StrEnum):
    """Which combination of hints the topology manager takes."""

    NARROWEST = "narrowest"
    """Preferred if all of its hints are; then the fewest nodes."""
    BALANCED = "balanced"
    """Preferred if besides they name the same nodes; else as many nodes as the neediest
    resource needs."""


class HealthCheck(StrEnum):
    """The check ``device-plugin`` of ``/healthz``."""

    NONE = "none"
    STRICT = "fails until the registration server has started, and once it has failed"
    LENIENT = "fails once the registration server has failed, and tells the cause"
