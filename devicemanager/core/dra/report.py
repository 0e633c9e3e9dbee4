"""Reports about DRA for users and programs: drivers, claims, slices, and what a pod waits for.

The module has only data classes and functions that describe ResourceSlices. Programs that show
reports import nothing else from ``core.dra``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

__all__ = [
    "ClaimDevice",
    "ClaimExplanation",
    "ClaimResult",
    "ClaimState",
    "ClaimsExplanation",
    "DraStatus",
    "DriverInstance",
    "ResourceClaimInfo",
    "ResourceSliceInfo",
    "SkippedCalls",
    "slice_info",
    "slice_nodes",
]


class ClaimState(StrEnum):
    """State of a ResourceClaim, such as prepared. If a pod waits for the claim, the state names the
    first thing that is missing."""

    PREPARED = "prepared"
    """The drivers have prepared the claim. A restart of the kubelet does not change this state for
    running pods."""
    NOT_NEEDED = "not-needed"
    """The pod needs no ResourceClaim for the entry in its ``spec.resourceClaims``."""
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
    """The kubelet's state still has an older claim with the same name and another UID."""
    UNPREPARING = "unpreparing"
    """A driver is still unpreparing the claim for another pod."""
    NOT_PREPARED = "not-prepared"
    """Nothing is missing, but the claim is not prepared yet."""
    PREPARE_FAILED = "prepare-failed"
    """Nothing is missing, but the last attempt to prepare the claim failed. The kubelet tries
    again."""
    NOT_USED = "not-used"
    """No pod of the node uses the claim."""


@attrs.frozen(kw_only=True, slots=False)
class ClaimExplanation:
    """Explanation of one claim of a pod: the claim's state, and what is missing."""

    entry: str
    """Name of the entry in the pod's ``spec.resourceClaims``; empty for the claim of the pod's
    extended resources."""
    claim: str | None
    """Name of the ResourceClaim; null if the name is not known."""
    state: ClaimState
    text: str
    """One line for users: what is missing, and the fix."""


@attrs.frozen(kw_only=True, slots=False)
class ClaimsExplanation:
    """Explanation why a pod has no sandbox, or why a pod cannot terminate."""

    pod: str
    """Namespace and name of the pod, as ``namespace/name``."""
    phase: str
    sandbox: bool
    """True if the pod's sandbox was created. This happens only after the claims were prepared."""
    ending: bool
    """True if the pod terminates as soon as its claims are unprepared."""
    error: str = ""
    """Error of the last attempt to prepare or unprepare the claims; empty if the attempt did not
    fail."""
    retry_in: float | None = None
    """Seconds until the kubelet retries; null if it does not retry."""
    claims: tuple[ClaimExplanation, ...] = ()


@attrs.frozen(kw_only=True, slots=False)
class DriverInstance:
    """A registered instance of a DRA driver."""

    driver: str
    endpoint: str
    """Path of the instance's service socket."""
    service: str
    """The version of the service that the kubelet calls, such as ``v1``."""
    health_service: str | None
    """The version of the health service that the kubelet calls; null for no health service."""
    connected: bool


@attrs.frozen(kw_only=True, slots=False)
class ClaimDevice:
    """An allocated device of a claim."""

    driver: str
    pool: str
    device: str
    share_id: str | None
    requests: tuple[str, ...]
    """Names of the claim's requests that the device is for. An empty tuple stands for all
    requests."""
    prepared: bool
    """True if the driver has prepared the device."""
    cdi_devices: tuple[str, ...]
    """The CDI devices that the driver returned for the device."""


@attrs.frozen(kw_only=True, slots=False)
class ResourceClaimInfo:
    """Description of a ResourceClaim of the node: its pods, its devices, and what is missing to
    prepare it.

    The control API, ``devicemanager ctl``, the terminal views and the live web page show this
    description.
    """

    namespace: str
    name: str
    uid: str
    """UID of the ResourceClaim; empty if the UID is not known."""
    state: ClaimState
    text: str
    """One line for users: what is missing, and the fix."""
    error: str
    """Error of the last attempt to prepare or unprepare the claim; empty if the attempt did not
    fail."""
    pods: tuple[str, ...]
    """The UIDs of the node's pods that use the claim, sorted."""
    held: bool
    """True if the claim is in the kubelet's state because a pod uses or used it."""
    prepared: bool
    """True if all drivers have prepared the claim since the kubelet started. A restart sets this to
    False, because the kubelet does not store the value. If the claim's pods still run, ``state``
    stays ``prepared``."""
    unpreparing: bool
    drivers: tuple[str, ...]
    """The drivers of the claim's devices, sorted."""
    devices: tuple[ClaimDevice, ...]
    """The claim's allocated devices; empty if the claim is not allocated."""

    @property
    def title(self) -> str:
        """The claim's ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def details(self) -> str:
        """One line for users: ``error``, or ``text`` if the kubelet has no error for the claim or
        ``text`` already contains the error."""
        # The empty error is part of every text, so it needs no case of its own.
        return self.text if self.error in self.text else self.error


@attrs.frozen(kw_only=True, slots=False)
class ResourceSliceInfo:
    """A ResourceSlice: some devices of a driver's pool."""

    name: str
    driver: str
    pool: str
    generation: int
    nodes: str
    """The nodes that can use the slice's devices, as ``slice_nodes`` returns them: for example a
    node's name, or ``all``."""
    devices: tuple[str, ...]
    """Names of the slice's devices."""
    counter_sets: tuple[str, ...]
    """Names of the slice's counter sets."""


@attrs.frozen(kw_only=True, slots=False)
class SkippedCalls:
    """Calls to a driver that were not made, because the driver's devices do not need the calls."""

    driver: str
    rpc: str
    count: int
    """Number of times, since the kubelet started, that the driver was not called for a claim."""


@attrs.frozen(kw_only=True, slots=False)
class DraStatus:
    """The registered drivers, the claims of the node, and the ResourceSlices."""

    drivers: tuple[DriverInstance, ...] = ()
    """The registered driver instances, sorted by driver, the oldest instance first."""
    claims: tuple[ResourceClaimInfo, ...] = ()
    """The claims of the node, sorted by namespace and name."""
    slices: tuple[ResourceSliceInfo, ...] = ()
    """The ResourceSlices in the kubelet's memory, sorted by driver, pool and name. Slices in an API
    server are not included."""
    skipped: tuple[SkippedCalls, ...] = ()
    """The skipped calls to drivers, sorted by RPC and driver."""


@attrs.frozen(kw_only=True, slots=False)
class ClaimResult:
    """Result that ``prepare_claims`` or ``unprepare_claims`` of ``MockKubelet`` returns for one
    claim."""

    error: str = ""
    """The driver's error for this claim; empty if the call succeeded."""
    devices: tuple[ClaimDevice, ...] = ()
    """The prepared devices; empty for NodeUnprepareResources."""


def slice_info(found: Mapping[str, Any]) -> ResourceSliceInfo:
    """Return a description of a ResourceSlice, which is given as JSON of resource.k8s.io/v1."""
    spec, pool = found.get("spec") or {}, (found.get("spec") or {}).get("pool") or {}
    metadata = found.get("metadata") or {}
    return ResourceSliceInfo(
        # Drivers set only ``generateName``, so a slice has no name before an API server adds it.
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
        driver=str(spec.get("driver") or ""),
        pool=str(pool.get("name") or ""),
        generation=pool.get("generation", 0),
        nodes=slice_nodes(spec),
        devices=tuple(str(each.get("name")) for each in spec.get("devices") or ()),
        counter_sets=tuple(str(each.get("name")) for each in spec.get("sharedCounters") or ()),
    )


_NODES = {"nodeSelector": "selector", "allNodes": "all", "perDeviceNodeSelection": "per device"}


def slice_nodes(spec: Mapping[str, Any]) -> str:
    """Return a text that says which nodes can use a slice's devices.

    The text is a node's name, ``all``, ``selector`` for a node selector, or ``-`` if the slice
    names no nodes. ``per device`` means that each device names its own nodes.
    """
    if name := spec.get("nodeName"):
        return str(name)
    return next((text for field, text in _NODES.items() if spec.get(field)), "-")
