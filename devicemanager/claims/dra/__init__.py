"""Allocation of ``resource.k8s.io`` claims (Dynamic Resource Allocation), as the scheduler does it.

In:  ResourceSlices, DeviceClasses and ResourceClaims as JSON; a node; the devices in use.
Out: an AllocationResult for each claim, the same that the scheduler would write; None if the
     claims do not fit on the node; or an error with the scheduler's message.

This package is a front end of ``claims.core``. It translates objects into an inventory, a ledger
and options; ``core.device_order`` searches. The reference is the structured allocator of
k8s.io/dynamic-resource-allocation, v0.37.2, and v0.36.3 for 1.36.

* ``allocation``: the entry points ``allocate`` and ``Allocator``.
* ``slices``, ``pools``, ``nodes``: what a node can use: newest generation, complete pools.
* ``requests``, ``selectors``, ``capacity``, ``taints``: which devices a request can have.
* ``results``: devices, configs and node selector of an allocation.
* ``profile``, ``quirks``: differences between versions, feature gates, and bugs of the original.

Not supported: derived attributes and compatibility groups, which are alpha in 1.37. As in the
original with these gates off, a claim with derived attributes is an error, and a pool with
compatibility groups is not used.

Invariants:

* A search that reaches its limit of steps raises ``TryAgain``; it never returns "does not fit".
* Equal arguments give equal results, except for share IDs. Nothing is changed.
* Slices are read once, however many nodes and claims there are (``Allocator``).

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
