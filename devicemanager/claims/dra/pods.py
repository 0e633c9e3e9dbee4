"""Claims of a pod: create them from templates, reserve them, and release them.

The functions take and return API objects as JSON, and do not change their arguments. The reference
is the claim controller (``pkg/controller/resourceclaim``) and the scheduler plug-in
``dynamicresources``, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from devicemanager.claims.dra.extended import owner_reference
from devicemanager.claims.dra.nodes import Node, selects
from devicemanager.claims.dra.results import AllocationResult
from devicemanager.claims.dra.slices import Object

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim from a template: the name of the entry in the pod's ``resourceClaims``."""
FINALIZER = "resource.kubernetes.io/delete-protection"
"""Finalizer that the scheduler adds when it allocates a claim."""
MAX_RESERVED = 256
"""Maximum number of pods for which one claim can be reserved."""
# The suffix has a hyphen and 5 characters, and the whole name fits into a DNS label of 63.
_LONGEST = 57
"""Maximum length of a generated name, without its random suffix."""


def claim_names(pod: Object) -> dict[str, str | None]:
    """Return the name of the ResourceClaim of each entry of ``spec.resourceClaims``, by entry name.

    The name is None if the claim of the entry is not created yet. Entries that need no claim are
    omitted.
    """
    known = {
        each["name"]: each.get("resourceClaimName")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found: dict[str, str | None] = {}
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry["name"]
        if entry.get("resourceClaimName"):
            found[name] = entry["resourceClaimName"]
        elif name not in known:
            found[name] = None
        # The claim controller writes null for an entry that needs no claim.
        elif known[name] is not None:
            found[name] = known[name]
    return found


def missing_templates(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield a pair for each entry of ``spec.resourceClaims`` whose claim is not created yet: the
    name of the entry, and the name of its ResourceClaimTemplate."""
    names = claim_names(pod)
    for entry in pod["spec"].get("resourceClaims") or ():
        template = entry.get("resourceClaimTemplateName")
        if template and names.get(entry["name"], "") is None:
            yield entry["name"], template


def claim_from_template(pod: Object, entry: str, template: Object) -> dict[str, Any]:
    """Return the claim that the claim controller creates from a template.

    ``entry``: name of the entry of ``spec.resourceClaims`` that refers to the template.
    """
    spec = template.get("spec") or {}
    metadata = spec.get("metadata") or {}
    made: dict[str, Any] = {
        "generateName": _base_name(pod["metadata"]["name"], entry),
        "namespace": pod["metadata"]["namespace"],
        "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM: entry},
        "ownerReferences": [owner_reference(pod)],
    }
    if metadata.get("labels"):
        made["labels"] = metadata["labels"]
    return {"metadata": made, "spec": spec.get("spec") or {}}


def _base_name(pod: str, entry: str) -> str:
    name = f"{pod}-{entry}-"
    if len(name) <= _LONGEST:
        return name
    # Shorten both parts in proportion, so that both stay readable.
    return (
        f"{pod[: len(pod) * _LONGEST // len(name)]}-{entry[: len(entry) * _LONGEST // len(name)]}"
    )


def is_allocated(claim: Object) -> bool:
    """True if devices are allocated to the claim."""
    return bool((claim.get("status") or {}).get("allocation"))


def allows_node(claim: Object, node: Node) -> bool:
    """True if a node can use the devices of an allocated claim."""
    selector = claim["status"]["allocation"].get("nodeSelector")
    return selector is None or selects(selector, node)


def is_reserved_for(claim: Object, pod: Object) -> bool:
    """True if the claim is reserved for the pod."""
    return pod["metadata"]["uid"] in _reserved(claim)


def has_room(claim: Object) -> bool:
    """True if the claim can be reserved for one more pod."""
    return len(_reserved(claim)) < MAX_RESERVED


def is_bindable(claim: Object) -> bool:
    """True if all binding conditions of the claim's devices are met."""
    return all(
        set(result.get("bindingConditions") or ()) <= met for result, met in _conditions(claim)
    )


def has_binding_failed(claim: Object) -> bool:
    """True if a binding failure condition of one of the claim's devices is met.

    The scheduler then gives up the devices (``isClaimReadyForBinding``, v1.36).
    """
    return any(
        set(result.get("bindingFailureConditions") or ()) & met
        for result, met in _conditions(claim)
    )


def _conditions(claim: Object) -> Iterator[tuple[Object, set[str]]]:
    """Yield each allocated device with the types of its conditions that are True."""
    status = claim.get("status") or {}
    met = {
        (each["driver"], each["pool"], each["device"]): {
            condition["type"]
            for condition in each.get("conditions") or ()
            if condition.get("status") == "True"
        }
        for each in status.get("devices") or ()
    }
    for each in status["allocation"]["devices"].get("results") or ():
        yield each, met.get((each["driver"], each["pool"], each["device"]), set())


def with_allocation(claim: Object, result: AllocationResult, now: str) -> dict[str, Any]:
    """Return the claim with ``result`` as the allocation in its status.

    ``now``: the current time in RFC 3339 format.
    """
    # The scheduler sets the time, not its allocator.
    allocation = {**result, "allocationTimestamp": now}
    return {**claim, "status": {**(claim.get("status") or {}), "allocation": allocation}}


def reserved(claim: Object, pod: Object) -> dict[str, Any]:
    """Return the claim with the pod added to ``status.reservedFor``."""
    metadata, status = pod["metadata"], claim.get("status") or {}
    user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    users = [*(status.get("reservedFor") or ()), user]
    return {**claim, "status": {**status, "reservedFor": users}}


def released(claim: Object, gone: Iterable[str]) -> dict[str, Any]:
    """Return the claim without reservations for the pods with the UIDs in ``gone``.

    If no reservation remains, the claim is deallocated.
    """
    uids, status = {*gone}, dict(claim.get("status") or {})
    users = [each for each in status.get("reservedFor") or () if each["uid"] not in uids]
    status["reservedFor"] = users
    if not users:
        # The claim controller clears the allocation. The API server then drops the device statuses.
        for name in ("reservedFor", "allocation", "devices"):
            status.pop(name, None)
    return {**claim, "status": status}


def reserved_pods(claim: Object) -> list[Object]:
    """Return the references to the pods for which a claim is reserved."""
    status = claim.get("status") or {}
    # A claim can also be reserved for other objects, such as a PodGroup.
    return [each for each in status.get("reservedFor") or () if each.get("resource") == "pods"]


def entry_of(claim: Object) -> str | None:
    """Return the name of the entry of ``spec.resourceClaims`` from which a claim was created.

    Return None if a user created the claim.
    """
    return (claim["metadata"].get("annotations") or {}).get(POD_CLAIM)


def owning_pod(claim: Object) -> str | None:
    """Return the UID of the pod that owns a claim; None if a user created the claim."""
    for each in claim["metadata"].get("ownerReferences") or ():
        # As upstream (``IsForPod``), only the controller counts, not other owners.
        if each.get("controller") and each.get("kind") == "Pod":
            return str(each["uid"])
    return None


def _reserved(claim: Object) -> list[str]:
    return [each["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ()]
