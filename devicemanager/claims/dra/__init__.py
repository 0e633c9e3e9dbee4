"""Allocate ``resource.k8s.io`` claims (Dynamic Resource Allocation) as the scheduler does.

In:  ResourceSlices, DeviceClasses and ResourceClaims as JSON; a node; the devices in use.
Out: the AllocationResult that the scheduler would write, for each claim; None if the claims do not
     fit on the node; or an error with the scheduler's message.

This package is a front end of ``claims.core``. It translates objects into an inventory, a ledger
and options, and ``core.device_order`` searches. The reference is the structured allocator of
k8s.io/dynamic-resource-allocation, v0.37.2, and v0.36.3 for 1.36. The docstrings in this package
call this allocator *upstream*.

* ``allocation``: the entry points ``allocate`` and ``Allocator``.
* ``slices``, ``pools``, ``nodes``: the devices that a node can use, in the newest generation of
  complete pools.
* ``requests``, ``selectors``, ``capacity``, ``taints``: the devices that satisfy a request.
* ``results``: devices, configs and node selector of an allocation.
* ``profile``, ``quirks``: differences between versions, feature gates, and upstream bugs.

Invariants:

* A search that reaches its step limit raises ``TryAgain``. It never returns None ("does not
  fit").
* Equal arguments give equal results, except for share IDs. Arguments are not changed.
* ``Allocator`` reads slices once, for any number of nodes and claims.

Start reading with ``allocation``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.claims.dra.allocation import (
        Allocator,
        InUse,
        Share,
        allocate,
        with_defaults,
    )
    from devicemanager.claims.dra.errors import AllocationError, InvalidPools
    from devicemanager.claims.dra.nodes import Node
    from devicemanager.claims.dra.profile import Feature, Profile, Quirk
    from devicemanager.claims.dra.results import AllocationResult

__all__ = [
    "AllocationError",
    "AllocationResult",
    "Allocator",
    "Feature",
    "InUse",
    "InvalidPools",
    "Node",
    "Profile",
    "Quirk",
    "Share",
    "allocate",
    "with_defaults",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AllocationError": "errors",
        "AllocationResult": "results",
        "Allocator": "allocation",
        "Feature": "profile",
        "InUse": "allocation",
        "InvalidPools": "errors",
        "Node": "nodes",
        "Profile": "profile",
        "Quirk": "profile",
        "Share": "allocation",
        "allocate": "allocation",
        "with_defaults": "allocation",
    },
)
