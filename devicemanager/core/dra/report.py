"""Reports about DRA for users and programs: drivers, claims, and what a pod waits for.

The module has only values. Programs that show reports import nothing else from ``core.dra``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from devicemanager.core.dra.model import ClaimInfo

__all__ = [
    "ClaimDevice",
    "ClaimExplanation",
    "ClaimState",
    "ClaimsExplanation",
    "DraStatus",
    "DriverInstance",
    "HeldClaim",
    "held_claim",
]


class ClaimState(StrEnum):
    """State of a claim: the first thing that is missing before it is prepared."""

    PREPARED = "prepared"
    NOT_NEEDED = "not-needed"
    """The pod needs no claim for this entry."""
    NOT_CREATED = "not-created"
    """The claim has not been created from its template yet."""
    NOT_FOUND = "not-found"
    """The API server does not return the claim."""
    NOT_OWNED = "not-owned"
    """The claim was created for another pod."""
    NOT_RESERVED = "not-reserved"
    NOT_ALLOCATED = "not-allocated"
    NO_DRIVER = "no-driver"
    """A driver of the claim is not registered."""
    NOT_CONNECTED = "not-connected"
    """A driver of the claim is registered, but the connection to it is broken."""
    OTHER_UID = "other-uid"
    """An older claim with this name is still prepared for another pod."""
    UNPREPARING = "unpreparing"
    """A driver still unprepares the claim for another pod."""
    NOT_PREPARED = "not-prepared"
    """Nothing is missing, but a driver failed or was not called yet."""


@attrs.frozen(kw_only=True, slots=False)
class ClaimExplanation:
    """The state of one claim of a pod."""

    entry: str
    """The pod's name for the claim; empty for the claim of its extended resources."""
    claim: str | None
    """Name of the ResourceClaim; null if it is not known."""
    state: ClaimState
    text: str
    """One line for users: what is missing, and the fix."""


@attrs.frozen(kw_only=True, slots=False)
class ClaimsExplanation:
    """Explanation why a pod has no sandbox, or cannot terminate."""

    pod: str
    """``namespace/name``."""
    phase: str
    sandbox: bool
    """True if the pod's sandbox was created, so its claims were prepared before."""
    ending: bool
    """True if the pod terminates as soon as its claims are unprepared."""
    error: str = ""
    """Error of the last attempt to prepare or unprepare the claims; empty if there is none."""
    retry_in: float | None = None
    """Seconds until the kubelet retries; null if it does not."""
    claims: tuple[ClaimExplanation, ...] = ()


@attrs.frozen(kw_only=True, slots=False)
class DriverInstance:
    """A registered instance of a DRA driver."""

    driver: str
    endpoint: str
    """Path of its service socket."""
    service: str
    """The version of the service that the kubelet calls, such as ``v1``."""
    health_service: str | None
    """The version of the health service that the kubelet calls; null for none."""
    connected: bool


@attrs.frozen(kw_only=True, slots=False)
class ClaimDevice:
    """A prepared device of a claim."""

    driver: str
    pool: str
    device: str
    share_id: str | None
    requests: tuple[str, ...]
    """Requests of the claim that the device serves; empty for all."""
    cdi_devices: tuple[str, ...]


@attrs.frozen(kw_only=True, slots=False)
class HeldClaim:
    """A ResourceClaim that is prepared for pods of the node."""

    namespace: str
    name: str
    uid: str
    pods: tuple[str, ...]
    """UIDs of these pods."""
    prepared: bool
    """True if all drivers have prepared the claim since the kubelet started."""
    unpreparing: bool
    drivers: tuple[str, ...]
    devices: tuple[ClaimDevice, ...]


@attrs.frozen(kw_only=True, slots=False)
class DraStatus:
    """The node's registered drivers and prepared claims."""

    drivers: tuple[DriverInstance, ...] = ()
    """Sorted by driver, the oldest instance first."""
    claims: tuple[HeldClaim, ...] = ()
    """Sorted by namespace and name."""


def held_claim(claim: ClaimInfo) -> HeldClaim:
    """Describe a claim of the cache."""
    return HeldClaim(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        pods=tuple(sorted(claim.pods)),
        prepared=claim.prepared,
        unpreparing=claim.unpreparing,
        drivers=tuple(sorted(claim.drivers)),
        devices=tuple(
            ClaimDevice(
                driver=driver,
                pool=each.pool,
                device=each.device,
                share_id=each.share_id,
                requests=each.requests or (),
                cdi_devices=each.cdi or (),
            )
            for driver, state in sorted(claim.drivers.items())
            for each in state.devices or ()
        ),
    )
