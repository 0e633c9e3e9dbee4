"""Times and counts that the checks of drivers use. The option ``--limit NAME=NUMBER`` changes one
of them."""

from __future__ import annotations

import attrs

from devicemanager.conformance.limit_values import limit
from devicemanager.conformance.limits import Limits

__all__ = ["SHARED_LIMITS", "DriverLimits"]

SHARED_LIMITS = (
    "start_seconds", "recover_seconds", "recover_warn_seconds", "refresh_seconds", "away_seconds",
    "settle_seconds",
)  # fmt: skip
"""Names of the limits of plugin checks that the checks of drivers also use."""


@attrs.frozen(kw_only=True)
class DriverLimits(Limits):
    """Limits and counts of the checks of drivers. Names such as DC20 are the IDs of checks.

    Of the fields of ``Limits``, the checks of drivers use only those in ``SHARED_LIMITS``.
    """

    publish_seconds: float = limit(30.0)
    """Maximum time from the driver's start until its ResourceSlices are complete."""
    # Controllers of the Go library compare slices again 60 s after their last write.
    repair_seconds: float = limit(120.0)
    """Maximum time until the driver's ResourceSlices are complete after an event, such as their
    deletion (DR06, DS04 to DS08)."""
    # The kubelet's deadline (pkg/kubelet/cm/dra/plugin/dra_plugin.go, v1.36).
    call_seconds: float = limit(45.0)
    """Deadline of NodePrepareResources and NodeUnprepareResources."""
    call_warn_seconds: float = limit(10.0)
    """Duration of NodePrepareResources or of a pod's start; a longer duration is only a warning
    (DC01, DC21)."""
    slow_api_seconds: float = limit(2.0)
    """Delay of each response of the API server, so that NodePrepareResources exceeds its deadline
    (DC20)."""
    parallel_claims: int = limit(20)
    """Number of claims that are prepared at the same time (DC21)."""
    kills: int = limit(3)
    """Number of times that the driver is killed during NodePrepareResources (DK05)."""
    # terminationGracePeriodSeconds of a pod by default.
    grace_seconds: float = limit(30.0)
    """Maximum time from SIGTERM to the exit of the driver."""
    early_stops: int = limit(3)
    """Number of times that the driver is stopped during its start (DL03)."""
    health_seconds: float = limit(15.0)
    """Maximum time from the opening of a health stream to its first report."""
    # The kubelet's default timeout of a report (pkg/kubelet/cm/dra/claiminfo.go, v1.36).
    health_repeat_seconds: float = limit(30.0)
    """Maximum time from a device change to the health report that shows it (DH05); also the time
    after which a report expires if it sets no timeout (DH03)."""
