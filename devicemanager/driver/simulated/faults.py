"""Faults of a simulated driver."""

from __future__ import annotations

import attrs

__all__ = ["DriverFaults"]


@attrs.define
class DriverFaults:
    """Faults of one simulated driver; by default none. You can change the fields at any time."""

    entry_error: str = ""
    """Error in the response entry of every claim, in prepare and unprepare."""
    claim_errors: dict[str, str] = attrs.field(factory=dict)
    """Errors in the response entries of single claims, by claim name or UID."""
    permanent_error: str = ""
    """Permanent error in the response entry of every claim, only in prepare (KEP-5322)."""
    call_error: str = ""
    """Message with which each prepare and unprepare call fails, with the gRPC status UNKNOWN. If
    empty, the calls do not fail."""
    hang: bool = False
    """True if the driver does not respond before the caller's deadline."""
    hang_after: bool = False
    """True if the driver prepares or unprepares the claims, but does not respond before the
    caller's deadline."""
    missing_entry: bool = False
    """True if the driver ignores the last claim of each call: the response has no entry for it."""
    unknown_uid: str = ""
    """UID of a claim that was not requested, for which responses have an additional entry."""
    duplicate: bool = False
    """True if response entries contain each device twice."""
    no_devices: bool = False
    """True if response entries contain no devices."""
    no_request_names: bool = False
    """True if the devices in responses have no request names."""
    crash_after_prepare: bool = False
    """True if the driver is killed after it has prepared claims, before it responds."""
    not_ready: bool = False
    """True if GetInfo fails with UNAVAILABLE, as for a driver that is not ready yet."""
    stop_delay: float = 0.0
    """Seconds that the driver takes to stop after SIGTERM or ``stop``."""
