"""Create ResourceClaims for checks, with devices that the driver has published.

The scheduler's allocator chooses the devices. So a choice never exceeds the counters and capacities
of the devices, and only devices that can be shared are shared. All functions are pure: equal
arguments lead to equal values. The only exceptions are the share IDs in allocation results, which
are random.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from devicemanager.claims.dra import Allocator, Node, with_defaults

__all__ = ["CLASS", "REQUEST", "allocate", "claim_with", "published"]

CLASS: Final = "conformance"
REQUEST: Final = "req"
"""Name of the device request in every claim."""

_Object = Mapping[str, Any]


def published(slices: Sequence[_Object]) -> list[tuple[str, str]]:
    """Return the devices in ``slices`` as pairs of pool name and device name.

    In each pool, only slices of the newest generation count.
    """
    # The scheduler ignores slices of older generations.
    newest: dict[str, int] = {}
    for each in slices:
        pool = each["spec"]["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [
        (pool["name"], device["name"])
        for each in slices
        for pool in [each["spec"]["pool"]]
        if pool["generation"] == newest[pool["name"]]
        for device in each["spec"].get("devices") or ()
    ]


def allocate(slices: Sequence[_Object], node: str, most: int) -> list[dict[str, Any]]:
    """Return allocation results for up to ``most`` devices that can be used together. Empty if no
    device can be allocated.

    Raises AllocationError for invalid slices.
    """
    classes = [{"metadata": {"name": CLASS}, "spec": {}}]
    allocator = Allocator(slices, classes)
    # 32 is the API's limit of devices per claim (AllocationResultsMaxSize). Devices may exclude
    # each other, such as the partitions of a GPU, so try fewer until the allocator finds a set.
    for count in range(min(most, 32, len(published(slices))), 0, -1):
        wanted = {"deviceClassName": CLASS, "count": count, "tolerations": [{"operator": "Exists"}]}
        spec = {"devices": {"requests": [{"name": REQUEST, "exactly": wanted}]}}
        claim = {"metadata": {"namespace": "default", "name": "all", "uid": "all"}, "spec": spec}
        found = allocator.allocate([with_defaults(claim)], Node(node))
        if found is not None:
            [result] = found
            return [copy.deepcopy(dict(each)) for each in result["devices"]["results"]]
    return []


def claim_with(
    name: str,
    results: Sequence[_Object],
    *,
    config: Sequence[_Object] = (),
    requests: Sequence[_Object] = (),
) -> dict[str, Any]:
    """Return a ResourceClaim with the allocation results ``results``.

    ``requests``: the requests in the spec of the claim; by default one request for the devices of
    all results.
    """
    wanted = [
        {
            "name": REQUEST,
            "exactly": {
                "deviceClassName": CLASS,
                # A request that the API server has stored has a count of at least 1.
                "count": max(1, len(results)),
                "tolerations": [{"operator": "Exists"}],
            },
        }
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests) or wanted}},
        "status": {"allocation": {"devices": {"results": list(results), "config": list(config)}}},
    }
