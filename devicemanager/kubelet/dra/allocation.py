"""Allocation of a pod's ResourceClaims in memory, as the scheduler and the claim controller do.

In:  ResourceSlices, DeviceClasses and ResourceClaimTemplates (``ResourceClaims.offer``); a pod.
Out: the pod's claims, allocated and reserved for the pod. Missing claims are created from
     templates, and for extended resources that no device plugin serves. After drivers have
     unprepared the claims, or if the pod is rejected, this module releases the claims and
     deletes those that the pod owns.

Claims that a test allocates itself do not change. Claims that this module allocates have the
scheduler's finalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.claims.dra import AllocationError, Allocator, InUse, Node, with_defaults
from devicemanager.claims.dra import pods as dra_pods
from devicemanager.claims.dra.extended import (
    ExtendedClaim,
    classes_by_resource,
    extended_claim,
    served_by_dra,
)
from devicemanager.claims.errors import DoesNotFit
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Pod
from devicemanager.events.stream import Event, EventKind, EventStream
from devicemanager.kubelet.dra.claim_source import ResourceClaims, Undo
from devicemanager.objects.manifests import stable_uid
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.resource_claims import JsonClaim
from devicemanager.objects.manifests.sources import client_object, text_of

_SUFFIX = 5
"""Number of random characters at the end of a generated name."""


class ClaimAllocation:
    """Allocator of the ResourceClaims of a node's pods. It uses the objects that were added with
    ``ResourceClaims.offer``."""

    def __init__(
        self,
        claims: ResourceClaims,
        node: str,
        events: EventStream,
        allocatable: Callable[[], Mapping[str, int]],
    ) -> None:
        """``allocatable`` returns a mapping from resource names to numbers of allocatable devices.
        Only devices of device plugins are counted."""
        self._claims = claims
        self._node = Node(node)
        self._allocatable = allocatable
        # As in a cluster, an admitted pod's claims are released only after the drivers have
        # unprepared them.
        events.subscribe(self._release)

    def allocate(self, pod: Pod, manifest: object) -> tuple[Pod, Undo]:
        """Allocate the pod's ResourceClaims and reserve them for the pod.

        Returns the pod with the names of the new claims in its status, and a function that restores
        the claims as they were before. Raises DoesNotFit if the claims do not fit on the node.
        Raises AllocationError for an invalid claim, DeviceClass or ResourceSlice, and RequestError
        for a missing ResourceClaimTemplate. If an error is raised, nothing has changed.
        """
        made = self._from_templates(pod, template_names(manifest))
        statuses = {
            **pod.claim_statuses,
            **{e: claim["metadata"]["name"] for e, claim in made.items()},
        }
        names = {*pod.resource_claims.values(), *statuses.values()}
        # Sorted, so that the same claims always get the same devices. A set has a random order.
        known = [self._claims.get(pod.namespace, name) for name in sorted(filter(None, names))]
        claims = [*(each for each in known if each is not None), *made.values()]
        new = [each for each in claims if not dra_pods.is_allocated(each)]
        extended = self._extended(pod, manifest)
        if extended is not None:
            new.append(_named(extended.claim(_json(pod)), pod))
            pod = _served_by_claim(pod, extended, new[-1]["metadata"]["name"])
        # Claims that other pods use already keep their allocation, and are only reserved.
        shared = [each for each in claims if _can_share(each, pod)]
        # This is the only step that changes claims, so an error in an earlier step changes nothing.
        undo = self._claims.put_all(
            [
                *self._allocated(pod, new),
                *(dra_pods.reserved(each, _json(pod)) for each in shared),
            ],
            pod.namespace,
        )
        if statuses != pod.claim_statuses:
            pod = attrs.evolve(pod, claim_statuses=statuses)
        return pod, undo

    def _extended(self, pod: Pod, manifest: object) -> ExtendedClaim | None:
        """Return the pod's requests for extended resources that DRA serves; None if there are
        none."""
        raw = _pod_of(manifest)
        # A claim in the pod's status was already created for these requests.
        if pod.extended_claim is not None or not raw:
            return None
        resources = classes_by_resource(self._claims.all_offered("DeviceClass"))
        served = served_by_dra(raw, self._allocatable(), resources)
        return extended_claim(raw, served) if served else None

    def _from_templates(self, pod: Pod, templates: Mapping[str, str]) -> dict[str, JsonClaim]:
        """Create the pod's missing claims from templates. Return the new claims by the name of
        their entry in ``spec.resourceClaims``."""
        found = {}
        for entry, name in pod.resource_claims.items():
            if name is not None or entry in pod.claim_statuses or entry not in templates:
                continue
            template = self._claims.offered(
                "ResourceClaimTemplate", templates[entry], pod.namespace
            )
            if template is None:
                raise RequestError(
                    f"pod {pod.namespace}/{pod.name}: ResourceClaimTemplate {templates[entry]} does"
                    " not exist: add it with resource_claims.offer"
                )
            claim = dra_pods.claim_from_template(_json(pod), entry, template)
            found[entry] = _named(claim, pod)
        return found

    def _allocated(self, pod: Pod, claims: list[JsonClaim]) -> list[JsonClaim]:
        if not claims:
            return []
        allocator = Allocator(
            self._claims.all_offered("ResourceSlice"), self._claims.all_offered("DeviceClass")
        )
        complete = [with_defaults(each) for each in claims]
        in_use = InUse.of(self._claims.list())
        results = allocator.allocate(complete, self._node, in_use)
        if results is None:
            reasons = allocator.explain(complete, self._node, in_use)
            raise DoesNotFit(
                f"pod {pod.namespace}/{pod.name} does not fit on node {self._node.name}:"
                f" {'; '.join(each.strip() for each in reasons)}"
            )
        return [
            _protected(dra_pods.reserved({**claim, "status": {"allocation": result}}, _json(pod)))
            for claim, result in zip(complete, results, strict=True)
        ]

    def _release(self, event: Event) -> None:
        """Release the claims of a pod that was rejected or whose claims drivers have unprepared."""
        if event.kind not in (EventKind.CLAIMS_UNPREPARED, EventKind.REJECTED):
            return
        for claim in self._claims.list():
            # A claim without the finalizer was allocated by the test, which also releases it.
            if dra_pods.FINALIZER not in (claim["metadata"].get("finalizers") or ()):
                continue
            if event.pod not in [each.get("uid") for each in dra_pods.reserved_pods(claim)]:
                continue
            namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            if dra_pods.owning_pod(claim) == event.pod:
                # As in a cluster, a claim that was created for a pod is deleted with the pod.
                self._claims.delete(namespace, name)
            else:
                self._claims.apply(dra_pods.released(claim, [str(event.pod)]), namespace=namespace)


def _can_share(claim: JsonClaim, pod: Pod) -> bool:
    """True if this module has allocated the claim for other pods, and can also reserve it for this
    pod."""
    is_own = dra_pods.FINALIZER in (claim["metadata"].get("finalizers") or ())
    return (
        is_own
        and dra_pods.is_allocated(claim)
        and not dra_pods.is_reserved_for(claim, _json(pod))
        and dra_pods.has_room(claim)
    )


def _named(claim: JsonClaim, pod: Pod) -> JsonClaim:
    """Return a copy of the claim with a generated name, as the API server would give it. The name
    depends only on the pod."""
    metadata = {**claim["metadata"], "namespace": pod.namespace}
    base = metadata.pop("generateName")
    metadata["name"] = base + stable_uid("ResourceClaim", f"{pod.uid} {base}")[:_SUFFIX]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**head, **claim, "metadata": metadata}


def _served_by_claim(pod: Pod, extended: ExtendedClaim, name: str) -> Pod:
    """Return the pod with ``status.extendedResourceClaimStatus``."""
    requests = tuple(
        (
            ContainerName(each["containerName"]),
            ResourceName(each["resourceName"]),
            each["requestName"],
        )
        for each in extended.mappings
    )
    backed = frozenset((container, resource) for container, resource, _ in requests)
    return attrs.evolve(pod, extended_claim=name, extended_requests=requests, backed=backed)


def template_names(manifest: object) -> dict[str, str]:
    """Return a mapping from entries in ``spec.resourceClaims`` to their ResourceClaimTemplates.

    Keys and values are names. Entries without a template are omitted.
    """
    spec = _pod_of(manifest).get("spec") or {}
    return {
        each["name"]: each["resourceClaimTemplateName"]
        for each in spec.get("resourceClaims") or ()
        if each.get("resourceClaimTemplateName")
    }


def _pod_of(manifest: object) -> Mapping[str, Any]:
    if isinstance(manifest, Mapping):
        return manifest
    if isinstance(manifest, str | Path):
        documents = load_documents(text_of(manifest))
        pods = (each for each in documents if isinstance(each, dict) and each.get("kind") == "Pod")
        return next(pods, {})
    if type(manifest).__module__.startswith("kubernetes."):
        return client_object(manifest)
    return {}


def _json(pod: Pod) -> dict[str, Any]:
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": str(pod.uid)}}


def _protected(claim: JsonClaim) -> JsonClaim:
    return {**claim, "metadata": {**claim["metadata"], "finalizers": [dra_pods.FINALIZER]}}


__all__ = ["AllocationError", "ClaimAllocation", "template_names"]
