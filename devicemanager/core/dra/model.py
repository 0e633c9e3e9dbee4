"""Representations of claims in pods, the API server, drivers and the DRA manager's cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NewType

import attrs

InstanceId = NewType("InstanceId", int)
"""Number that identifies one registration of a driver instance. It is never reused."""

DriverName = str
"""Name of a driver, such as ``gpu.example.com``."""


# The UID is not part of the key, as in the kubelet's cache. A claim that was deleted and created
# again has the same key, so the UIDs must be compared, too.
class ClaimKey(NamedTuple):
    """Namespace and name of a ResourceClaim."""

    namespace: str
    name: str


# Claims in the spec and status of a pod.


class PodClaim(NamedTuple):
    """An entry of ``spec.resourceClaims``: at most one of ``claim`` and ``template`` is set."""

    name: str
    """Name by which the containers of the pod refer to the claim."""
    claim: str | None = None
    """``resourceClaimName``: the name of the ResourceClaim; None if not set."""
    template: str | None = None
    """``resourceClaimTemplateName``: the name of the ResourceClaimTemplate; None if not set.

    ``PodClaims.statuses`` has the name of the claim that is created from the template.
    """


class ContainerClaim(NamedTuple):
    """An entry of a container's ``resources.claims``."""

    name: str
    """Name of the entry in the pod's ``spec.resourceClaims`` (``PodClaim.name``)."""
    request: str = ""
    """Name of a request in the claim: the container gets only the devices of this request. If the
    name is empty, the container gets the devices of all requests."""


class RequestMapping(NamedTuple):
    """An entry of a pod's ``status.extendedResourceClaimStatus.requestMappings``."""

    container: str
    resource: str
    request: str


class ExtendedClaim(NamedTuple):
    """``status.extendedResourceClaimStatus``: the claim that provides a pod's extended
    resources."""

    claim: str
    mappings: tuple[RequestMapping, ...] = ()


@attrs.frozen
class ContainerClaims:
    """The claims of one container, and its extended resources."""

    name: str
    claims: tuple[ContainerClaim, ...] = ()
    requests: Mapping[str, int] = attrs.field(factory=dict)
    """Requested amounts of extended resources, by resource (``resources.requests``)."""
    init: bool = False
    """True for init containers, both ordinary and restartable."""


@attrs.frozen
class PodClaims:
    """The claims of one pod, from its spec and status."""

    uid: str
    name: str
    namespace: str
    claims: tuple[PodClaim, ...] = ()
    """``spec.resourceClaims``, in order."""
    statuses: Mapping[str, str | None] = attrs.field(factory=dict)
    """``status.resourceClaimStatuses``: names of the claims created from templates, by
    ``PodClaim.name``.

    None in place of a name means that the pod needs no claim for this ``PodClaim``.
    """
    extended: ExtendedClaim | None = None
    pod_group: str | None = None
    """Name of the pod's PodGroup; None if the pod has no PodGroup."""
    containers: tuple[ContainerClaims, ...] = ()
    """All containers, init containers first."""

    @property
    def label(self) -> str:
        """The pod's ``namespace/name``, for messages."""
        return f"{self.namespace}/{self.name}"


# A claim from the API server.


class AllocationResult(NamedTuple):
    """An entry of ``status.allocation.devices.results``."""

    driver: DriverName
    request: str = ""
    pool: str = ""
    device: str = ""
    skips: tuple[str, ...] = ()
    """``skipNodeOperations``: RPCs of the driver that the device does not need; ``*`` means all."""


@attrs.frozen
class ResourceClaim:
    """The fields of a ResourceClaim that the kubelet reads."""

    namespace: str
    name: str
    uid: str
    results: tuple[AllocationResult, ...] | None = None
    """``status.allocation.devices.results``; None if the claim is not allocated."""
    reserved: tuple[str, ...] = ()
    """UIDs of the objects in ``status.reservedFor``, such as pods."""
    reserved_groups: tuple[str, ...] = ()
    """Names of PodGroups in ``status.reservedFor``."""
    owner: str | None = None
    """UID of the Pod that is the claim's controlling owner; None if the owner is not a Pod."""
    owner_group: str | None = None
    """Name of the PodGroup that is the claim's controlling owner; None if the owner is not a
    PodGroup."""


# Requests to drivers, and their responses.


class ClaimRef(NamedTuple):
    """Namespace, name and UID of a claim in a request to a driver."""

    namespace: str
    name: str
    uid: str


@attrs.frozen
class PreparedDevice:
    """A prepared device, in a driver's response and in the cache.

    Like nil slices in Go, ``requests`` and ``cdi`` are None if the list is empty in the driver's
    response or ``null`` in the state file.
    """

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    """Names of the claim's requests that the device is for. None and an empty tuple stand for
    all requests."""
    cdi: tuple[str, ...] | None = None
    """CDI device names for containers."""

    def serves(self, request: str) -> bool:
        """True if a container that uses only the request ``request`` of the claim gets the device.

        An empty ``request`` means that the container uses all requests.
        """
        # The names are compared as they are. A container that uses the request ``parent`` does not
        # get a device whose request is ``parent/sub``.
        return not request or not self.requests or request in self.requests


@attrs.frozen
class PrepareResult:
    """A driver's response to NodePrepareResources for one claim. If the response has an error, its
    devices are ignored."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""
    permanent: bool = False
    """True if the driver can never prepare the claim (``permanent_error`` of KEP-5322)."""


@attrs.frozen
class UnprepareResult:
    """A driver's response to NodeUnprepareResources for one claim."""

    error: str = ""


# The cache.


@attrs.frozen
class DriverState:
    """What the kubelet stores about one driver of a claim."""

    devices: tuple[PreparedDevice, ...] | None = None
    """Devices that the driver has prepared; None if it has not responded yet, or has prepared no
    devices."""
    skips: tuple[str, ...] = ()
    """RPCs that no device of this driver needs for the claim, sorted; ``("*",)`` means all RPCs."""

    def skipped(self, operation: str) -> bool:
        """True if the driver is not called for ``operation``, such as NodePrepareResources."""
        return operation in self.skips or "*" in self.skips


@attrs.frozen
class ClaimInfo:
    """What the kubelet stores about a ResourceClaim, in the cache and in the state file."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    """UIDs of the pods that use the claim. A pod is added before the claim is prepared for the
    pod."""
    drivers: Mapping[DriverName, DriverState] = attrs.field(factory=dict)
    """The state of each driver, sorted by name."""
    # The next two fields are lost in a restart. The kubelet then prepares the claim again before it
    # creates another sandbox for a pod that uses the claim.
    prepared: bool = False
    """True if all drivers have prepared the claim. Not in the state file."""
    unpreparing: bool = False
    """True while drivers unprepare the claim (since v1.37). Not in the state file."""

    @property
    def key(self) -> ClaimKey:
        """The claim's namespace and name."""
        return ClaimKey(self.namespace, self.name)

    @property
    def ref(self) -> ClaimRef:
        """The claim as it is sent to drivers."""
        return ClaimRef(self.namespace, self.name, self.uid)
