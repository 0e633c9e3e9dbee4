"""Descriptions of a node's ResourceClaims for users.

In:  the ResourceClaims that the kubelet can read without a request to the API server, the specs of
     the node's pods, and the DRA manager's cache.
Out: for each claim its pods, its devices, and the first thing that the claim waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.drivers import Drivers
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.explanation import (
    KEPT,
    NOT_ALLOCATED,
    Attempt,
    is_kept,
    not_prepared,
    state_of,
)
from devicemanager.core.dra.model import (
    ClaimInfo,
    ClaimKey,
    PodClaims,
    PreparedDevice,
    ResourceClaim,
)
from devicemanager.core.dra.names import ClaimName, claim_name
from devicemanager.core.dra.report import ClaimDevice, ClaimState, ResourceClaimInfo
from devicemanager.core.dra.rules import DraRules

__all__ = ["Node", "claim_infos", "prepared_device"]


@attrs.frozen
class Node:
    """State of a node, from which ``claim_infos`` describes the node's claims.

    The caller must hold the DRA manager's lock.
    """

    claims: Mapping[ClaimKey, ResourceClaim]
    """The claims that the kubelet can read without a request to the API server, by namespace and
    name."""
    pods: Sequence[PodClaims]
    attempts: Mapping[str, Attempt]
    """The last attempt to prepare or unprepare claims, by the UID of each pod in ``pods``."""
    cache: ClaimCache
    drivers: Drivers
    rules: DraRules
    absent: Mapping[str, str]
    """For each deregistered driver, by driver name: a text that says why the driver is absent, such
    as ``it deregistered 5 s ago``."""


@attrs.frozen
class _Use:
    pod: PodClaims
    owned: bool


def claim_infos(node: Node) -> Iterator[ResourceClaimInfo]:
    """Yield the descriptions of all claims, sorted by namespace and name."""
    uses: dict[ClaimKey, list[_Use]] = {}
    for pod in node.pods:
        for name in _names(pod, node.rules):
            key = ClaimKey(pod.namespace, name.name)
            uses.setdefault(key, []).append(_Use(pod, name.owned))
    # Each source can have claims that the others lack. The cache, for example, keeps the claims of
    # deleted pods until they are unprepared.
    keys = {*node.claims, *uses, *(each.key for each in node.cache)}
    for key in sorted(keys):
        yield _info(node, key, uses.get(key, ()))


def _names(pod: PodClaims, rules: DraRules) -> Iterator[ClaimName]:
    for entry in pod.claims:
        try:
            name = claim_name(pod, entry, rules)
        except DraError:
            continue  # the claim was not created yet, so it has no name
        if name is not None:
            yield name
    if pod.extended is not None:
        yield ClaimName(pod.extended.claim, False)


def _info(node: Node, key: ClaimKey, uses: Sequence[_Use]) -> ResourceClaimInfo:
    claim, held = node.claims.get(key), node.cache.get(key)
    pods = {each.pod.uid for each in uses} | (set() if held is None else held.pods)
    state, text = _state(node, claim, held, uses)
    errors = (each.error for uid in sorted(pods) if (each := node.attempts.get(uid)) is not None)
    devices = tuple(_devices(claim, held))
    return ResourceClaimInfo(
        namespace=key.namespace,
        name=key.name,
        # If a claim was deleted and created again, the cache still has the UID of the old claim.
        uid=claim.uid if claim is not None else held.uid if held is not None else "",
        state=state,
        text=text,
        error=next(filter(None, errors), ""),
        pods=tuple(sorted(pods)),
        held=held is not None,
        prepared=held is not None and held.prepared,
        unpreparing=held is not None and held.unpreparing,
        drivers=tuple(sorted({each.driver for each in devices} | set(_drivers(held)))),
        devices=devices,
    )


def _drivers(held: ClaimInfo | None) -> Iterable[str]:
    return () if held is None else held.drivers


def _state(
    node: Node, claim: ResourceClaim | None, held: ClaimInfo | None, uses: Sequence[_Use]
) -> tuple[ClaimState, str]:
    """Return the claim's state and a line that explains it, for the first pod that waits for the
    claim."""
    found = [_of_pod(node, claim, held, each) for each in uses]
    waiting = (each for each in found if each[0] is not ClaimState.PREPARED)
    if (state := next(waiting, None)) is not None:
        return state
    if found:
        return found[0]
    if held is not None and held.prepared:
        return ClaimState.PREPARED, "prepared"
    if held is not None:
        return ClaimState.NOT_PREPARED, "the node holds the claim for pods that it does not know"
    if claim is not None and claim.results is None:
        return ClaimState.NOT_ALLOCATED, NOT_ALLOCATED
    return ClaimState.NOT_USED, "no pod of the node uses the claim"


def _of_pod(
    node: Node, claim: ResourceClaim | None, held: ClaimInfo | None, use: _Use
) -> tuple[ClaimState, str]:
    attempt = node.attempts[use.pod.uid]
    if claim is not None:
        owner = use.pod.uid if use.owned else None
        return state_of(claim, owner, use.pod, node.cache, node.drivers, node.absent, attempt)
    # Without a request to the API server, only the cache says something about the claim.
    if held is not None and held.prepared:
        return ClaimState.PREPARED, "prepared"
    if attempt.has_sandbox and held is not None and is_kept(held, use.pod.uid):
        return ClaimState.PREPARED, KEPT
    return not_prepared(attempt, "`devicemanager dra explain` shows what the claim waits for")


def _devices(claim: ResourceClaim | None, held: ClaimInfo | None) -> Iterator[ClaimDevice]:
    """Yield the prepared devices, then the allocated devices that are not prepared."""
    prepared = set()
    for driver, state in sorted(held.drivers.items()) if held is not None else ():
        for each in state.devices or ():
            prepared.add((driver, each.pool, each.device))
            yield prepared_device(driver, each)
    # A prepared device is not listed again: the driver's response also has its CDI devices.
    for result in (claim.results or ()) if claim is not None else ():
        if (result.driver, result.pool, result.device) not in prepared:
            yield ClaimDevice(
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                share_id=None,
                requests=(result.request,) if result.request else (),
                prepared=False,
                cdi_devices=(),
            )


def prepared_device(driver: str, device: PreparedDevice) -> ClaimDevice:
    """Return the description of a device that a driver has prepared."""
    return ClaimDevice(
        driver=driver,
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        requests=device.requests or (),
        prepared=True,
        cdi_devices=device.cdi or (),
    )
