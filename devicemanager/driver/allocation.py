"""Read the allocation of a ResourceClaim for one driver, without side effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from devicemanager.driver.errors import ClaimError
from devicemanager.driver.values import AllocatedDevice, Claim

__all__ = ["base_request", "read_claim"]

_Object = Mapping[str, Any]
_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def read_claim(found: _Object | None, namespace: str, name: str, uid: str, driver: str) -> Claim:
    """Return a claim with the devices that are allocated from one driver.

    ``found``: the ResourceClaim (v1) from the API server; None if it does not exist. Raises
    ClaimError if the ResourceClaim does not exist, has another UID or is not allocated. The
    messages are those of the Go library ``kubeletplugin``.
    """
    if found is None:
        raise ClaimError(f"claim {namespace}/{name} not found")
    metadata = found.get("metadata", {})
    # The claim may have been deleted and created again with the same name.
    if metadata.get("uid") != uid:
        raise ClaimError(f"claim {namespace}/{name} got replaced")
    allocation = (found.get("status") or {}).get("allocation")
    if allocation is None:
        raise ClaimError(f"claim {namespace}/{name} not allocated")
    devices = allocation.get("devices") or {}
    configs = tuple(_parameters(devices.get("config") or (), driver))
    pod_claim = (metadata.get("annotations") or {}).get(_POD_CLAIM, "")
    return Claim(
        namespace=namespace,
        name=name,
        uid=uid,
        devices=tuple(
            _device(result, configs)
            for result in devices.get("results") or ()
            # A claim can have devices of several drivers, and the kubelet calls each of them.
            if result["driver"] == driver
        ),
        pod_claim_name=pod_claim,
    )


def base_request(request: str) -> str:
    """Return a request's name without the subrequest: ``gpu`` for ``gpu/large``.

    Containers refer to requests, never to subrequests.
    """
    return request.partition("/")[0]


_Config = tuple[tuple[str, ...], _Object]
"""Names of requests (empty for all), and parameters."""


def _parameters(configs: Iterable[_Object], driver: str) -> Iterator[_Config]:
    """Yield the configurations for a driver, first from classes, then from claims."""
    ours = [config for config in configs if (config.get("opaque") or {}).get("driver") == driver]
    # The sort is stable: the order within the classes and within the claim does not change.
    for config in sorted(ours, key=lambda config: config.get("source") != "FromClass"):
        yield tuple(config.get("requests") or ()), config["opaque"].get("parameters") or {}


def _device(result: _Object, configs: Iterable[_Config]) -> AllocatedDevice:
    request = str(result["request"])
    # A configuration for the request ``gpu`` also applies to its subrequest ``gpu/large``.
    names = {request, base_request(request)}
    return AllocatedDevice(
        request=request,
        pool=str(result["pool"]),
        device=str(result["device"]),
        share_id=result.get("shareID") or "",
        admin_access=bool(result.get("adminAccess")),
        consumed_capacity=result.get("consumedCapacity") or {},
        parameters=tuple(
            parameters
            for requests, parameters in configs
            if not requests or not names.isdisjoint(requests)
        ),
    )
