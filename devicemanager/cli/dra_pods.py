"""Explain, without a kubelet, why the claims of a pod fit on a node or do not fit.

``devicemanager dra explain`` and ``devicemanager explain`` share this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.claims.dra import AllocationError, Allocator, InUse, InvalidPools, with_defaults
from devicemanager.claims.dra import pods as dra_pods
from devicemanager.claims.errors import TryAgain

if TYPE_CHECKING:
    from devicemanager.claims.dra import Node
    from devicemanager.cli.dra_files import Object
    from devicemanager.cli.dra_objects import DraObjects

_FITS = ("allocated", "fits")


@attrs.frozen
class ClaimResult:
    """Result for one entry in a pod's ``spec.resourceClaims``: the devices of the claim, or the
    reason why the claim does not fit."""

    entry: str
    claim: str
    """Name of the ResourceClaim, or of the template that it is made from."""
    state: str
    """``allocated``, ``fits`` or ``does-not-fit``. ``not-found``: the claim or template is not in
    the objects. ``other-node``: the claim has devices of another node. ``error``: the
    allocation failed. ``undecided``: the search for devices reached its limits."""
    text: str
    """Devices of the claim, or what is missing."""


@attrs.frozen
class PodExplanation:
    """Results for all claims of a pod on one node. ``reasons`` is empty if the claims fit."""

    pod: str
    node: str
    claims: tuple[ClaimResult, ...]
    reasons: tuple[str, ...] = ()
    """Lines that say why the claims do not fit. They name, for each request, the first rule that
    excludes each device. If the allocation fails with an error, the only line is the error."""

    @property
    def fits(self) -> bool:
        """True if all claims of the pod are allocated or fit on the node."""
        return all(each.state in _FITS for each in self.claims)

    def text(self) -> str:
        """Return the explanation as lines."""
        head = "fits" if self.fits else "does not fit"
        lines = [f"pod {self.pod} {head} on node {self.node}"]
        lines += [
            f"claim {each.entry} ({each.claim}): {each.state}: {each.text}" for each in self.claims
        ]
        return "\n".join([*lines, *self.reasons])

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {**attrs.asdict(self), "fits": self.fits}


def explain_pod(objects: DraObjects, pod: Object, node: Node) -> PodExplanation:
    """Allocate the claims of a pod, as the scheduler does, and explain the result.

    If all claims fit, append the newly allocated claims to ``objects.claims``. Their devices are
    then in use for later calls.
    """
    found = _PodClaims(objects, pod, node)
    results = [found.result(entry) for entry in pod["spec"].get("resourceClaims") or ()]
    metadata = pod["metadata"]
    title, name = f"{metadata['namespace']}/{metadata['name']}", node.name
    if not found.new:
        return PodExplanation(title, name, tuple(results))
    # Two entries of a pod can name the same claim, which is allocated once.
    claims = list({each["metadata"]["name"]: each for each in found.new.values()}.values())
    allocated, state, reasons = _allocate(objects, claims, node)
    texts = {each["metadata"]["name"]: ", ".join(_devices(each)) for each in allocated}
    for index, each in enumerate(results):
        if each.entry in found.new:
            text = texts.get(found.new[each.entry]["metadata"]["name"])
            why = text or "the node has no devices for its requests and constraints"
            results[index] = attrs.evolve(each, state=state, text=why)
    # All or nothing: the scheduler does not bind a pod of which one claim does not fit.
    if all(each.state in _FITS for each in results):
        objects.claims += allocated
    return PodExplanation(title, name, tuple(results), reasons)


def _allocate(
    objects: DraObjects, claims: list[Object], node: Node
) -> tuple[list[Object], str, tuple[str, ...]]:
    """Allocate all claims together. Return the allocated claims, the state, and the reasons.

    If the claims cannot be allocated, the first value is empty, and the reasons say why. The state
    is that of each claim (``ClaimResult.state``).
    """
    in_use = InUse.of(objects.claims)
    try:
        allocator = Allocator(objects.slices, objects.classes)
        try:
            results = allocator.allocate(claims, node, in_use)
        # With an invalid pool, the claims can still fit on another node, so the state is not
        # ``error``.
        except InvalidPools:
            results = None
        if results is None:
            return [], "does-not-fit", allocator.explain(claims, node, in_use)
    except TryAgain as error:
        return [], "undecided", (str(error),)
    except AllocationError as error:
        return [], "error", (str(error),)
    made = [
        {**claim, "status": {"allocation": dict(result)}}
        for claim, result in zip(claims, results, strict=True)
    ]
    return made, "fits", ()


def _devices(claim: Object) -> Iterator[str]:
    for each in claim["status"]["allocation"]["devices"].get("results") or ():
        yield f"{each['request']}={each['driver']}/{each['pool']}/{each['device']}"


class _PodClaims:
    """The claims of a pod. ``new`` has the claims to allocate, by entry of
    ``spec.resourceClaims``."""

    def __init__(self, objects: DraObjects, pod: Object, node: Node) -> None:
        self._pod = pod
        self._node = node
        self._names = dra_pods.claim_names(pod)
        namespace = pod["metadata"]["namespace"]
        self._claims = _named(objects.claims, namespace)
        self._templates = _named(objects.templates, namespace)
        self.new: dict[str, Object] = {}

    def result(self, entry: Object) -> ClaimResult:
        """Return the result for an entry, without allocating its claim.

        If the claim must be allocated, add it to ``new``. The result is then ``fits``, without
        devices.
        """
        name = entry["name"]
        # The status of the pod says so (``resourceClaimStatuses`` without a name).
        if name not in self._names:
            return ClaimResult(name, "-", "allocated", "the pod needs no claim for this entry")
        claim = self._names[name]
        if claim is not None:
            return self._of_claim(name, claim)
        template = str(entry.get("resourceClaimTemplateName") or "-")
        if template not in self._templates:
            text = "the objects have no ResourceClaimTemplate with this name"
            return ClaimResult(name, template, "not-found", text)
        # A manifest has no UID, but the claim's owner reference contains one.
        pod = {**self._pod, "metadata": {"uid": "", **self._pod["metadata"]}}
        made = dra_pods.claim_from_template(pod, name, self._templates[template])
        # The API server would append a random suffix. A fixed one makes the output the same in each
        # run.
        made["metadata"]["name"] = made["metadata"].pop("generateName") + "0"
        self.new[name] = with_defaults(made)
        return ClaimResult(name, template, "fits", "")

    def _of_claim(self, entry: str, name: str) -> ClaimResult:
        claim = self._claims.get(name)
        if claim is None:
            text = "the objects have no ResourceClaim with this name"
            return ClaimResult(entry, name, "not-found", text)
        if not dra_pods.is_allocated(claim):
            self.new[entry] = claim
            return ClaimResult(entry, name, "fits", "")
        if not dra_pods.allows_node(claim, self._node):
            text = f"its devices cannot be used on node {self._node.name}"
            return ClaimResult(entry, name, "other-node", text)
        return ClaimResult(entry, name, "allocated", ", ".join(_devices(claim)))


def _named(objects: list[Object], namespace: str) -> dict[str, Object]:
    return {
        each["metadata"]["name"]: each
        for each in objects
        if each["metadata"].get("namespace") == namespace
    }
