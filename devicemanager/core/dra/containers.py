"""CDI devices of a container, and its claims as PodResources and the pod's status show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import attrs

from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.dra import messages
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.health import HealthCache
from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimKey,
    ContainerClaims,
    DriverName,
    ExtendedClaim,
    PodClaims,
    PreparedDevice,
)
from devicemanager.core.dra.names import claim_name
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus

_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"


class _Use(NamedTuple):
    """A claim that a container uses."""

    claim: str
    request: str | None
    """Name of the request in the claim; empty for all requests. None means that the claim must
    exist, but the container gets no devices of the claim."""
    extended: bool = False
    """True for the claim of the pod's extended resources."""


@attrs.frozen
class ClaimDevice:
    """A device of a claim, as PodResources reports it."""

    driver: DriverName
    pool: str
    device: str
    cdi: tuple[str, ...]
    share_id: str | None = None


@attrs.frozen
class ClaimDevices:
    """A container's claim and all devices of the claim, as PodResources reports them."""

    namespace: str
    name: str
    devices: tuple[ClaimDevice, ...]


@attrs.frozen
class ClaimDeviceHealth:
    """Health of one device in ``allocatedResourcesStatus``."""

    resource_id: str
    health: Health
    message: str | None = None


def container_cdi(
    pod: PodClaims, container: str, cache: ClaimCache, rules: DraRules
) -> tuple[str, ...]:
    """Return the CDI devices that a container gets, in the kubelet's order (``GetResources``).

    A CDI device can occur more than once. The function does not check whether the claims are
    prepared.

    Raises DraError if a claim of the container is not in the cache or does not exist yet. Before
    v1.36, it is also an error if another claim of the pod does not exist yet.
    """

    wording = rules.wording
    uses: Iterable[_Use] = _uses(pod, container, rules)
    # Since v1.36, the CDI devices of a claim are together, even if the container names the claim's
    # requests at several places in its spec.
    if rules.behaviour.dra_gathers_requests:
        uses = _gathered(uses)
    found: list[str] = []
    for use in uses:
        text = wording.no_info_extended if use.extended else wording.no_info
        claim = _held(cache, pod, use.claim, text)
        for _, device in _devices(claim):
            if use.request is not None and device.serves(use.request):
                found.extend(device.cdi or ())
    return tuple(found)


def _gathered(uses: Iterable[_Use]) -> Iterator[_Use]:
    """Yield the uses grouped by claim, in the order of their first use."""
    by_claim: dict[str, list[_Use]] = {}
    for use in uses:
        by_claim.setdefault(use.claim, []).append(use)
    return (use for each in by_claim.values() for use in each)


def dynamic_resources(
    pod: PodClaims, container: str, cache: ClaimCache, rules: DraRules
) -> tuple[ClaimDevices, ...]:
    """Return the claims of a container as PodResources lists them (``GetContainerClaimInfos``).

    Each claim is listed with all its devices, not only with those of the container's requests.

    Raises DraError like ``container_cdi``. The kubelet then lists no claim for the container.
    """

    spec = _container(pod, container)
    listed = []
    for each in pod.claims:
        uses = [used for used in spec.claims if used.name == each.name] if spec is not None else []
        # Before v1.36, a claim is listed once for each request that the container names. A claim
        # that does not exist yet is then an error even for containers that do not use it.
        if not rules.behaviour.dra_claim_per_request:
            if not uses:
                continue
            del uses[1:]
        name = claim_name(pod, each, rules, rules.wording.podresources_name)
        if name is not None:
            for _ in uses:
                claim = _held(cache, pod, name.name, rules.wording.no_information)
                listed.append(_listed(claim, rules))
    extended = pod.extended
    mapped = extended.mappings if extended is not None and rules.behaviour.dra_extended else ()
    if extended is not None and any(mapping.container == container for mapping in mapped):
        claim = _held(cache, pod, extended.claim, messages.NO_INFORMATION_EXTENDED)
        listed.append(_listed(claim, rules))
    return tuple(listed)


def _listed(claim: ClaimInfo, rules: DraRules) -> ClaimDevices:
    listed = []
    cdi: tuple[str, ...] = ()
    last = ""
    for driver, device in _devices(claim):
        # Q26: a device also has the CDI devices of the same driver's preceding devices.
        grown = cdi if "Q26" in rules.quirks and driver == last else ()
        cdi, last = grown + (device.cdi or ()), driver
        listed.append(ClaimDevice(driver, device.pool, device.device, cdi, device.share_id))
    return ClaimDevices(claim.namespace, claim.name, tuple(listed))


def claims_status(
    pod: PodClaims, cache: ClaimCache, health: HealthCache, rules: DraRules, now: float
) -> Mapping[str, Mapping[str, Sequence[ClaimDeviceHealth]]]:
    """Return the part of ``allocatedResourcesStatus`` that is about claims
    (``UpdateAllocatedResourcesStatus``): for each container name, the container's entries.

    The entries of a container are a mapping. Its keys are ``claim:<name>`` or
    ``claim:<name>/<request>``; its values have the health of the devices. Init containers and
    claims of extended resources are omitted. The result is empty if the kubelet does not watch
    health.

    ``resource_id`` of a device is the name of its first CDI device or, without one,
    ``<driver>/<pool>/<device>``. If several devices under one key have the same ``resource_id``,
    only the first is listed.
    """
    found: dict[str, dict[str, Sequence[ClaimDeviceHealth]]] = {}
    if not rules.behaviour.dra_health:
        return found
    for container in pod.containers:
        entries = {} if container.init else _container_status(pod, container, cache, health, now)
        if entries:
            found[container.name] = entries
    return found


def resource_statuses(
    entries: Mapping[str, Sequence[ClaimDeviceHealth]],
) -> tuple[ResourceStatus, ...]:
    """Return a ``ResourceStatus`` for each key of ``entries``, sorted by key.

    ``entries`` are the entries of one container, as ``claims_status`` returns them.
    """
    return tuple(
        ResourceStatus(
            ResourceName(name),
            tuple(
                ResourceHealth(DeviceId(each.resource_id), each.health, each.message)
                for each in listed
            ),
        )
        for name, listed in sorted(entries.items())
    )


def _container_status(
    pod: PodClaims, container: ContainerClaims, cache: ClaimCache, health: HealthCache, now: float
) -> dict[str, Sequence[ClaimDeviceHealth]]:
    # A claim from a template has a generated name, which only the pod's status has.
    names = {each.name: each.claim or pod.statuses.get(each.name) for each in pod.claims}
    entries: dict[str, Sequence[ClaimDeviceHealth]] = {}
    for used in container.claims:
        claim = cache.get(ClaimKey(pod.namespace, names.get(used.name) or ""))
        # Not an error: a pod has a status also before its claims are prepared.
        if claim is None:
            continue
        resources: dict[str, ClaimDeviceHealth] = {}
        for driver, device in _devices(claim):
            if device.serves(used.request):
                known = health.get(driver, device.pool, device.device, now)
                own = f"{driver}/{device.pool}/{device.device}"
                resource_id = device.cdi[0] if device.cdi else own
                entry = ClaimDeviceHealth(resource_id, known.health, known.message or None)
                # If a driver gives all its devices the same first CDI device, the kubelet reports
                # only one of these devices.
                resources.setdefault(resource_id, entry)
        if resources:
            suffix = f"/{used.request}" if used.request else ""
            entries[f"claim:{used.name}{suffix}"] = tuple(resources.values())
    return entries


def _container(pod: PodClaims, name: str) -> ContainerClaims | None:
    return next((each for each in pod.containers if each.name == name), None)


def _uses(pod: PodClaims, container: str, rules: DraRules) -> Iterator[_Use]:
    """Iterate over the claims that a container uses.

    Order: the pod's spec, then the container's spec, then the claim of extended resources.
    """
    gathers = rules.behaviour.dra_gathers_requests
    spec = _container(pod, container)
    if spec is None:
        return
    for claim in pod.claims:
        requests = [used.request for used in spec.claims if used.name == claim.name]
        # Before v1.36, a claim of the pod that does not exist yet is an error for each container.
        needed = requests or not gathers
        name = claim_name(pod, claim, rules, rules.wording.container_name) if needed else None
        if name is not None:
            for request in requests:
                yield _Use(name.name, request)
    if pod.extended is not None and rules.behaviour.dra_extended:
        # Before v1.36, the claim must be in the cache even if the container uses no device of it.
        if not gathers:
            yield _Use(pod.extended.claim, None, extended=True)
        for request in _extended_requests(pod.extended, spec, rules):
            yield _Use(pod.extended.claim, request, extended=True)


def _extended_requests(
    extended: ExtendedClaim, spec: ContainerClaims, rules: DraRules
) -> Iterator[str]:
    every = rules.behaviour.dra_all_mappings
    seen: set[str] = set()
    for mapping in extended.mappings:
        resource = mapping.resource
        if mapping.container != spec.name or not spec.requests.get(resource):
            continue
        # As in IsDRAExtendedResourceName: native resources, such as cpu, get no devices.
        of_class = every and resource.startswith(_DEVICE_CLASS)
        if of_class or is_extended_resource_name(resource):
            # Before v1.36, only the first mapping of a resource counts.
            if every or resource not in seen:
                yield mapping.request
            seen.add(resource)


def _held(cache: ClaimCache, pod: PodClaims, name: str, missing: str) -> ClaimInfo:
    """Return a claim from the cache. Raises DraError with the message ``missing`` if it is not
    there."""
    claim = cache.get(ClaimKey(pod.namespace, name))
    if claim is None:
        raise DraError(missing.format(claim=name, namespace=pod.namespace))
    return claim


def _devices(claim: ClaimInfo) -> Iterator[tuple[DriverName, PreparedDevice]]:
    for driver in sorted(claim.drivers):
        for device in claim.drivers[driver].devices or ():
            yield driver, device
