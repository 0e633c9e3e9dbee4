"""Claims in the DRA manager: from pods, the API server and drivers, and in its cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NewType

import attrs

InstanceId = NewType("InstanceId", int)
"""Number of one registration of a driver instance. Numbers are never reused."""

DriverName = str
"""Name of a driver such as ``gpu.example.com``."""


class ClaimKey(NamedTuple):
    """Namespace and name of a ResourceClaim."""

    namespace: str
    name: str


# What a pod says about its claims.


class PodClaim(NamedTuple):
    """An entry of ``spec.resourceClaims``: at most one of ``claim`` and ``template`` is set."""

    name: str
    """Name by which the containers of the pod refer to the claim."""
    claim: str | None = None
    """``resourceClaimName``."""
    template: str | None = None
    """``resourceClaimTemplateName``. The claim's name is in ``PodClaims.statuses``."""


class ContainerClaim(NamedTuple):
    """An entry of a container's ``resources.claims``."""

    name: str
    """``PodClaim.name``."""
    request: str = ""
    """The request of the claim whose devices the container gets; empty means all."""


class RequestMapping(NamedTuple):
    """An entry of ``status.extendedResourceClaimStatus.requestMappings``."""

    container: str
    resource: str
    request: str


class ExtendedClaim(NamedTuple):
    """``status.extendedResourceClaimStatus``: the claim behind a pod's extended resources."""

    claim: str
    mappings: tuple[RequestMapping, ...] = ()


@attrs.frozen
class ContainerClaims:
    """The claims of one container, and its extended resources."""

    name: str
    claims: tuple[ContainerClaim, ...] = ()
    requests: Mapping[str, int] = attrs.field(factory=dict)
    """``resources.requests`` of extended resources."""
    init: bool = False
    """True for init containers of both kinds."""


@attrs.frozen
class PodClaims:
    """The claims of one pod, from its spec and status."""

    uid: str
    name: str
    namespace: str
    claims: tuple[PodClaim, ...] = ()
    """``spec.resourceClaims``, in order."""
    statuses: Mapping[str, str | None] = attrs.field(factory=dict)
    """``status.resourceClaimStatuses``: map of ``PodClaim.name`` to the name of the claim made
    from its template; None if the pod needs no claim."""
    extended: ExtendedClaim | None = None
    pod_group: str | None = None
    """Name of the pod's PodGroup, if it has one."""
    containers: tuple[ContainerClaims, ...] = ()
    """All containers, init containers first."""

    @property
    def label(self) -> str:
        """``namespace/name``, for messages."""
        return f"{self.namespace}/{self.name}"


# What the API server says about a claim.


class AllocationResult(NamedTuple):
    """An entry of ``status.allocation.devices.results``."""

    driver: DriverName
    request: str = ""
    pool: str = ""
    device: str = ""
    skips: tuple[str, ...] = ()
    """``skipNodeOperations``: the calls that the device does not need; ``*`` means all."""


@attrs.frozen
class ResourceClaim:
    """The fields of a ResourceClaim that the kubelet reads."""

    namespace: str
    name: str
    uid: str
    results: tuple[AllocationResult, ...] | None = None
    """``status.allocation.devices.results``; None if the claim is not allocated."""
    reserved: tuple[str, ...] = ()
    """The uids in ``status.reservedFor``."""
    reserved_groups: tuple[str, ...] = ()
    """The names of PodGroups in ``status.reservedFor``."""
    owner: str | None = None
    """The uid of the Pod that is the controlling owner."""
    owner_group: str | None = None
    """The name of the PodGroup that is the controlling owner."""


# Requests to drivers, and their responses.


class ClaimRef(NamedTuple):
    """A claim in a request to a driver."""

    namespace: str
    name: str
    uid: str


@attrs.frozen
class PreparedDevice:
    """A prepared device: in a driver's answer, and in the cache.

    ``requests`` and ``cdi`` are None where Go has a nil slice: an answer without entries, and
    ``null`` in the state file.
    """

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    """The requests of the claim that the device serves; None and empty mean all."""
    cdi: tuple[str, ...] | None = None
    """The CDI device names that a container gets."""

    def serves(self, request: str) -> bool:
        """True if a container that names ``request`` gets the device; empty means all requests."""
        return not request or not self.requests or request in self.requests


@attrs.frozen
class PrepareResult:
    """A driver's answer for one claim. The devices of an answer with an error are ignored."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


@attrs.frozen
class UnprepareResult:
    """A driver's answer for one claim."""

    error: str = ""


# The cache.


@attrs.frozen
class DriverState:
    """What the kubelet stores about one driver of a claim."""

    devices: tuple[PreparedDevice, ...] | None = None
    """None before the first answer."""
    skips: tuple[str, ...] = ()
    """The calls that no device of the driver needs, sorted; ``("*",)`` means all calls."""

    def skipped(self, operation: str) -> bool:
        """True if the driver is not called for ``operation``, such as NodePrepareResources."""
        return operation in self.skips or "*" in self.skips


@attrs.frozen
class ClaimInfo:
    """A claim that the node holds, in the cache and in the state file."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    """The uids of the pods that hold the claim."""
    drivers: Mapping[DriverName, DriverState] = attrs.field(factory=dict)
    """The state of each driver, sorted by name."""
    prepared: bool = False
    """True if all drivers have prepared the claim. Not stored in the file."""
    unpreparing: bool = False
    """True while drivers unprepare the claim (since v1.37). Not stored in the file."""

    @property
    def key(self) -> ClaimKey:
        """Namespace and name."""
        return ClaimKey(self.namespace, self.name)

    @property
    def ref(self) -> ClaimRef:
        """The claim as drivers get it."""
        return ClaimRef(self.namespace, self.name, self.uid)
