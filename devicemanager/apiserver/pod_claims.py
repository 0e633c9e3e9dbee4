"""Allocate and reserve the ResourceClaims of pods, for the scheduler.

This includes the claims for extended resources that DRA serves.

In:  a pending pod and a node; the slices, classes and claims of a server.
Out: a ``Plan``: the claims and their allocations. ``commit`` writes it to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.registry import timestamp
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object
from devicemanager.claims.dra import (
    AllocationResult,
    Allocator,
    InUse,
    InvalidPools,
    Node,
    with_defaults,
)
from devicemanager.claims.dra import pods as dra_pods
from devicemanager.claims.dra.extended import NO_NAME, ExtendedClaim, extended_claim, served_by_dra

_CLAIMS = "resourceclaims"


@attrs.frozen
class Plan:
    """Allocations for the claims of a pod on a node."""

    pod: Object
    node: str
    allocated: tuple[Object, ...]
    """Claims that are already allocated."""
    new: tuple[tuple[Object, AllocationResult], ...]
    """New allocations, as pairs of a claim and its allocation.

    If DRA serves extended resources of the pod, one of the claims is for these resources.
    ``PodClaims.commit`` creates this claim on the server.
    """
    extended: ExtendedClaim | None


class PodClaims:
    """Snapshot of the claims on one server, for scheduling pods."""

    def __init__(self, server: FakeApiServer, resources: Mapping[str, str]) -> None:
        """Read the claims, the ResourceSlices and the DeviceClasses of a server.

        ``resources``: mapping from each extended resource to the name of the DeviceClass that
        serves it.
        """
        self._server = server
        self._resources = resources
        self._allocator = Allocator(server.all("resourceslices"), server.all("deviceclasses"))
        self._claims = {_key(claim): claim for claim in server.all(_CLAIMS)}

    def why_not(self, pod: Object) -> str | None:
        """Return the reason why the pod must wait for its claims. The reason applies to all nodes.

        Return None if the pod may fit on a node; ``plan`` checks a single node.

        If the devices of a claim could not be bound, also deallocate the claim. A later plan can
        then use other devices.
        """
        for entry, name in dra_pods.claim_names(pod).items():
            if name is None:
                return f"waiting for the ResourceClaim of {entry}"
            claim = self._claims.get((pod["metadata"]["namespace"], name))
            if claim is None:
                return f'resourceclaim "{name}" not found'
            if not dra_pods.is_reserved_for(claim, pod) and not dra_pods.has_room(claim):
                return f'resourceclaim "{name}" in use'
            if dra_pods.is_allocated(claim) and dra_pods.has_binding_failed(claim):
                self._change(claim, _without_devices, "status")
                return f'binding of resourceclaim "{name}" failed: it gets other devices'
        return None

    def plan(self, pod: Object, node: Object) -> Plan | str:
        """Return a plan for the claims of a pod on a node. If the pod cannot use the node now,
        return the reason as text.

        Raises ClaimsError for an error that does not depend on the node.
        """
        target = Node.of(node)
        names = dra_pods.claim_names(pod).values()
        claims = [self._claims[pod["metadata"]["namespace"], str(name)] for name in names]
        allocated = [each for each in claims if dra_pods.is_allocated(each)]
        if not all(dra_pods.allows_node(each, target) for each in allocated):
            return "resourceclaim not available on the node"
        if not all(map(dra_pods.is_bindable, allocated)):
            return "waiting for binding conditions of devices"
        wanted = [each for each in claims if not dra_pods.is_allocated(each)]
        served = served_by_dra(pod, allocatable(node), self._resources)
        extended = extended_claim(pod, served) if served else None
        if extended is not None:
            wanted.append(extended.claim(pod))
        try:
            results = self._allocator.allocate(
                list(map(with_defaults, wanted)), target, InUse.of(self._claims.values())
            )
        except InvalidPools as error:
            return str(error)
        if results is None:
            return "cannot allocate all claims"
        new = tuple(zip(wanted, results, strict=True))
        return Plan(pod, target.name, tuple(allocated), new, extended)

    def commit(self, plan: Plan) -> None:
        """Write the allocations and reservations of a plan. Raises StatusError if the server
        rejects one of them."""
        for claim, result in plan.new:
            if claim["metadata"]["name"] == NO_NAME:
                claim = self._create(plan, claim)
            self._change(claim, _protected)
            self._change(claim, lambda value, r=result: _allocated(value, r, plan.pod), "status")
            # Between the two changes, the claim controller can remove the finalizer.
            metadata = self._claims[_key(claim)]["metadata"]
            if dra_pods.FINALIZER not in (metadata.get("finalizers") or ()):
                self._change(claim, _protected)
        for claim in plan.allocated:
            if not dra_pods.is_reserved_for(claim, plan.pod):
                self._change(claim, lambda value: dra_pods.reserved(value, plan.pod), "status")

    def is_ready(self, plan: Plan) -> bool:
        """True if the pod can be bound at once: no newly allocated device has binding
        conditions."""
        return not any(
            each.get("bindingConditions")
            for _, result in plan.new
            for each in result["devices"].get("results") or ()
        )

    def _create(self, plan: Plan, claim: Object) -> Object:
        """Create the claim for the pod's extended resources."""
        assert plan.extended is not None, "only the claim for extended resources has no name"
        named = {key: value for key, value in claim["metadata"].items() if key != "name"}
        claim = self._server.create(
            _CLAIMS, {**claim, "metadata": named}, plan.pod["metadata"]["namespace"]
        )
        status = {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": list(plan.extended.mappings),
        }

        def mapped(value: Object) -> Object:
            value["status"]["extendedResourceClaimStatus"] = status
            return value

        metadata = plan.pod["metadata"]
        self._server.change(
            "pods", metadata["name"], mapped, metadata["namespace"], subresource="status"
        )
        return claim

    def _change(self, claim: Object, change: Any, subresource: str = "") -> None:
        namespace, name = _key(claim)
        changed = self._server.change(_CLAIMS, name, change, namespace, subresource=subresource)
        self._claims[namespace, name] = changed


def allocatable(node: Object) -> Mapping[str, Any]:
    """Return the allocatable resources of a Node object."""
    return (node.get("status") or {}).get("allocatable") or {}


def _without_devices(claim: Object) -> Object:
    """Return the claim without allocation and reservations, so that it is allocated again."""
    return {**claim, "status": {}}


def _protected(claim: Object) -> Object:
    finalizers = claim["metadata"].get("finalizers") or []
    if dra_pods.FINALIZER not in finalizers:
        claim["metadata"]["finalizers"] = [*finalizers, dra_pods.FINALIZER]
    return claim


def _allocated(claim: Object, result: AllocationResult, pod: Object) -> Object:
    if dra_pods.is_allocated(claim):
        raise StatusError(409, f"claim {claim['metadata']['name']} is allocated already")
    return dra_pods.reserved(dra_pods.with_allocation(claim, result, timestamp()), pod)


def _key(claim: Object) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]
