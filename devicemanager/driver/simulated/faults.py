"""Faults of a simulated driver."""

from __future__ import annotations

import attrs

__all__ = ["DriverFaults"]


@attrs.define
class DriverFaults:
    """Faults of one simulated driver; by default none. Change the fields at any time."""

    entry_error: str = ""
    """Error in the response entry of every claim, in both calls."""
    claim_errors: dict[str, str] = attrs.field(factory=dict)
    """Errors in the response entries of single claims, by their name or UID."""
    call_error: str = ""
    """Error of the whole call, with the gRPC status UNKNOWN."""
    hang: bool = False
    """True if calls get no response before the caller's deadline."""
    hang_after: bool = False
    """True if calls do their work and then get no response before the caller's deadline."""
    missing_entry: bool = False
    """True if responses lack the entry of the last claim."""
    unknown_uid: str = ""
    """UID of an additional entry that was not requested."""
    duplicate: bool = False
    """True if every device is in its entry twice."""
    no_devices: bool = False
    """True if entries have no devices."""
    no_request_names: bool = False
    """True if devices do not name the requests that they are for."""
    crash_after_prepare: bool = False
    """True if the driver is killed after it has prepared claims and before it responds."""
    not_ready: bool = False
    """True if the driver does not answer the kubelet's GetInfo yet."""
    stop_delay: float = 0.0
    """Seconds that the driver takes to stop after SIGTERM or ``stop``."""
