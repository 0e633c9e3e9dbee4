"""Sources of ResourceClaims for the kubelet: an API server, or memory.

``ClaimSource`` is the interface that the DRA manager uses. ``ResourceClaims`` implements it in
memory, for tests. ``api_claims`` implements it with an API server.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import attrs

from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.core.dra.model import AllocationResult, ResourceClaim
from devicemanager.core.errors import RequestError
from devicemanager.core.pods import Pod
from devicemanager.core.printable import printable
from devicemanager.objects.manifests import stable_uid
from devicemanager.objects.manifests.resource_claims import (
    DRA_KINDS,
    OFFERED,
    ClaimSources,
    JsonClaim,
    is_claim,
    read_dra_objects,
    read_resource_claims,
)

__all__ = ["ClaimSource", "ResourceClaims", "claim_of"]

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a ResourceClaim from a template. Its value is the name of the entry in the pod's
``spec.resourceClaims``."""


_CLAIM = "ResourceClaim"
_TEMPLATE = "ResourceClaimTemplate"
"""The only namespaced kind that ``offer`` accepts."""

Status = Mapping[str, Any]
Undo = Callable[[], None]


class ClaimSource(Protocol):
    """Source of ResourceClaims, such as an API server. Thread-safe."""

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim in API version v1.

        Raises ClaimFetchError with the API server's message.
        """

    def known(self, kind: str) -> Iterable[Mapping[str, Any]]:
        """Return the objects of a kind, sorted by name. Only objects that can be read without a
        request to a server are included."""

    def wipe(self, selector: str) -> None:
        """Delete all ResourceSlices that match the field selector. Raises DeviceManagerError if the
        deletion fails and must be retried."""

    def close(self) -> None:
        """Cancel requests in progress."""


class ResourceClaims:
    """ResourceClaims in memory, which tests can change at any time. Thread-safe.

    A claim is a dict as in the API (v1). The objects survive restarts of the kubelet.
    """

    def __init__(self, changed: Callable[[str], None] = lambda text: None) -> None:
        """``changed`` is called after each change of an object, with a text such as
        ``DeviceClass gpu applied``. ``clear`` calls it only once."""
        self._changed = changed
        self._lock = threading.Lock()
        self._claims: dict[tuple[str, str], JsonClaim] = {}
        self._errors: dict[tuple[str, str], str] = {}
        self._offered: dict[tuple[str, str, str], JsonClaim] = {}
        """Objects added with ``offer``, by kind, namespace and name."""

    def __len__(self) -> int:
        return len(self._claims)

    # -- as an API server ------------------------------------------------------------

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Internal: return a ResourceClaim.

        Raises DeviceManagerError in two cases. If the claim does not exist, the error has the text
        of an API server. If the test has called ``fail`` for the claim, the error has the text from
        that call.
        """
        with self._lock:
            if error := self._errors.get((namespace, name)):
                raise ClaimFetchError(error)
            claim = self._claims.get((namespace, name))
        if claim is None:
            raise ClaimFetchError.not_found(name)
        # Not a copy: the kubelet only reads claims, and each change stores a new dict.
        return claim

    def known(self, kind: str) -> Iterable[Mapping[str, Any]]:
        """Internal: return all objects of a kind, sorted by namespace and name. Do not change
        them."""
        if kind != _CLAIM:
            return self.all_offered(kind)
        with self._lock:
            return [self._claims[key] for key in sorted(self._claims)]

    def wipe(self, selector: str) -> None:
        """Internal: do nothing. ResourceSlices that were added with ``offer`` are not deleted."""

    def close(self) -> None:
        """Internal: do nothing. This source has no requests."""

    # -- for tests -------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> JsonClaim | None:
        """Return a copy of a ResourceClaim; None if it does not exist."""
        with self._lock:
            return copy.deepcopy(self._claims.get((namespace, name)))

    def list(self) -> tuple[JsonClaim, ...]:
        """Return copies of all ResourceClaims, sorted by namespace and name."""
        with self._lock:
            return tuple(copy.deepcopy(self._claims[key]) for key in sorted(self._claims))

    def apply(self, source: ClaimSources, *, namespace: str = "default") -> None:
        """Create ResourceClaims, or replace those with the same name.

        A source is a dict, YAML text, a path, an object of the package ``kubernetes``, or an
        iterable of these, in v1, v1beta2 or v1beta1. A claim without a namespace gets
        ``namespace``. A claim without a UID gets a UID derived from its name. Raises ManifestError
        for an invalid source.
        """
        for claim in read_resource_claims(source):
            self._put(claim, namespace)

    def offer(self, *objects: Mapping[str, Any], namespace: str = "default") -> None:
        """Add ResourceSlices, DeviceClasses and ResourceClaimTemplates of resource.k8s.io/v1.

        From then on, ``MockKubelet.admit`` does the work of the scheduler and the claim controller:
        it creates claims from templates, and allocates devices to claims without an allocation.

        Slices and classes have no namespace. A template without a namespace gets ``namespace``.
        Raises RequestError for objects of other kinds.
        """
        for each in objects:
            # All kinds are checked before the first object is added, so an error adds nothing.
            if (kind := each.get("kind")) not in OFFERED:
                raise RequestError(f"invalid kind {kind!r}: use one of {', '.join(OFFERED)}")
        for each in objects:
            kind = each["kind"]
            metadata = each["metadata"]
            own = metadata.get("namespace") or namespace if kind == _TEMPLATE else ""
            with self._lock:
                self._offered[kind, own, metadata["name"]] = copy.deepcopy(dict(each))
            # Without the lock, because the callback may call methods of this object.
            self._changed(f"{kind} {metadata['name']} applied")

    def load(self, source: ClaimSources, *, namespace: str = "default") -> None:
        """Create or replace objects of all kinds that ``apply`` and ``offer`` accept.

        The source is a dict, YAML text, a path, or an iterable of these. Objects without a
        namespace get ``namespace``. Raises ManifestError for an invalid source, and then changes
        nothing.
        """
        for each in read_dra_objects(source):
            if is_claim(each):
                self.apply(each, namespace=namespace)
            else:
                self.offer(each, namespace=namespace)

    def objects(self, kind: str) -> tuple[JsonClaim, ...]:
        """Return copies of all objects of a kind, sorted by namespace and name.

        Raises RequestError for an unknown kind.
        """
        self._check_kind(kind)
        return tuple(copy.deepcopy(dict(each)) for each in self.known(kind))

    def remove(self, kind: str, name: str, *, namespace: str = "default") -> None:
        """Delete an object. Raises RequestError if it does not exist, or for an unknown kind."""
        self._check_kind(kind)
        if kind == _CLAIM:
            self.delete(namespace, name)
            return
        # Slices and classes have no namespace.
        own = namespace if kind == _TEMPLATE else ""
        with self._lock:
            found = self._offered.pop((kind, own, name), None)
        if found is None:
            raise RequestError(f"{kind} {name} does not exist")
        self._changed(f"{kind} {name} deleted")

    @staticmethod
    def _check_kind(kind: str) -> None:
        if kind not in DRA_KINDS:
            raise RequestError(f"invalid kind {kind!r}: use one of {', '.join(DRA_KINDS)}")

    @property
    def are_allocated(self) -> bool:
        """True if ``MockKubelet.admit`` allocates the claims of pods (see ``offer``)."""
        return bool(self._offered)

    def offered(self, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Internal: return an object that was added with ``offer``; None if it does not exist."""
        return self._offered.get((kind, namespace, name))

    def all_offered(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Internal: return all objects of a kind that were added with ``offer``, sorted by
        namespace and name."""
        with self._lock:
            return tuple(self._offered[key] for key in sorted(self._offered) if key[0] == kind)

    def put_all(self, claims: Iterable[JsonClaim], namespace: str) -> Undo:
        """Internal: add or replace claims. Return a function that undoes these changes."""
        before: dict[tuple[str, str], JsonClaim | None] = {}
        for claim in claims:
            claim["metadata"].setdefault("namespace", namespace)
            # If ``claims`` has a claim twice, the state before the first change must be restored.
            before.setdefault(_key(claim), self._claims.get(_key(claim)))
            self._put(claim, namespace)
        return partial(self._restore, before)

    def _restore(self, claims: Mapping[tuple[str, str], JsonClaim | None]) -> None:
        with self._lock:
            # A rejection may have released a claim already.
            changed = {key: each for key, each in claims.items() if self._claims.get(key) != each}
            for key, claim in changed.items():
                if claim is None:
                    del self._claims[key]
                else:
                    self._claims[key] = claim
        for key, claim in changed.items():
            what = "deleted" if claim is None else "restored"
            self._changed(f"ResourceClaim {'/'.join(key)} {what}")

    def _put(self, claim: JsonClaim, namespace: str) -> None:
        metadata = claim["metadata"]
        metadata.setdefault("namespace", namespace)
        if not metadata.get("uid"):
            metadata["uid"] = stable_uid("ResourceClaim", "/".join(_key(claim)))
        # The caller may change its dict later.
        claim = copy.deepcopy(claim)
        with self._lock:
            self._claims[_key(claim)] = claim
        self._changed(f"ResourceClaim {'/'.join(_key(claim))} applied")

    def adopt(self, pod: Pod, source: ClaimSources) -> tuple[Pod, Undo]:
        """Internal: add the claims of a pod, as the scheduler and the claim controller do.

        Each claim in ``source`` is stored. If it is allocated, it is also reserved for the pod. A
        claim whose name is not in the pod's spec is assigned to an entry of
        ``spec.resourceClaims`` that has a template. The claim's annotation
        ``resource.kubernetes.io/pod-claim-name`` names this entry. A claim without the annotation
        is assigned to the first such entry that has no claim. The pod becomes the owner of an
        assigned claim.

        Returns the pod with the names of the assigned claims in ``status.resourceClaimStatuses``,
        and a function that restores the stored claims as they were before.

        Raises ManifestError for an invalid claim, and RequestError for a claim that the pod cannot
        use. An error changes nothing.
        """
        claims = read_resource_claims(source)
        statuses = {**pod.claim_statuses}
        # Entries without the name of a claim use a template. Those in the status already have a
        # claim.
        free = [
            name
            for name, claim in pod.resource_claims.items()
            if claim is None and name not in statuses
        ]
        named = {*pod.resource_claims.values(), *statuses.values(), pod.extended_claim}
        for claim in claims:
            metadata = claim["metadata"]
            metadata.setdefault("namespace", pod.namespace)
            if metadata["namespace"] != pod.namespace:
                raise RequestError(
                    f"ResourceClaim {'/'.join(_key(claim))} is not in the namespace of pod "
                    f"{pod.namespace}/{pod.name}: create the claim there"
                )
            if metadata["name"] not in named:
                entry = (metadata.get("annotations") or {}).get(_POD_CLAIM_NAME)
                entry = entry if entry is not None else next(iter(free), None)
                if entry not in free:
                    raise RequestError(
                        f"pod {pod.namespace}/{pod.name} does not use ResourceClaim "
                        f"{metadata['name']}: name it in spec.resourceClaims"
                    )
                free.remove(entry)
                statuses[entry] = metadata["name"]
                metadata["ownerReferences"] = [_owner(pod)]
            _reserve(claim, pod)
        # Claims are stored only after all of them were checked, so an error changes nothing.
        return _with_statuses(pod, statuses), self.put_all(claims, pod.namespace)

    def add(self, pod: Pod, source: ClaimSources) -> tuple[Pod, Undo]:
        """Internal: store the claims in ``source`` without reserving them for the pod.

        A claim without a namespace gets the namespace of ``pod``. Returns ``pod``, unchanged, and a
        function that restores the stored claims as they were before.
        """
        return pod, self.put_all(read_resource_claims(source), pod.namespace)

    def deallocate(self, namespace: str, name: str) -> None:
        """Remove the allocation and the reservations of a claim. Raises RequestError for an unknown
        claim."""
        self._change(namespace, name, lambda status: {})

    def reserve(self, namespace: str, name: str, pod: Pod | str) -> None:
        """Reserve a claim for a pod. ``pod`` is the pod or its UID. Raises RequestError for an
        unknown claim."""
        # The kubelet compares only UIDs, so an entry without the pod's name is enough.
        entry = _consumer(pod) if isinstance(pod, Pod) else {"resource": "pods", "uid": pod}
        self._change(
            namespace,
            name,
            lambda status: {**status, "reservedFor": [*_reserved(status), entry]},
        )

    def unreserve(self, namespace: str, name: str, uid: str) -> None:
        """Remove a pod's reservation of a claim. ``uid`` is the UID of the pod. Raises RequestError
        for an unknown claim."""
        self._change(
            namespace,
            name,
            lambda status: {
                **status,
                "reservedFor": [each for each in _reserved(status) if each.get("uid") != uid],
            },
        )

    def replace(self, namespace: str, name: str, uid: str) -> None:
        """Give a claim the new UID ``uid``, as if it had been deleted and created again. Raises
        RequestError for an unknown claim."""
        with self._lock:
            claim = self._known(namespace, name)
            self._claims[namespace, name] = {**claim, "metadata": {**claim["metadata"], "uid": uid}}
        self._changed(f"ResourceClaim {namespace}/{name} replaced")

    def delete(self, namespace: str, name: str) -> None:
        """Delete a claim. Raises RequestError if it does not exist."""
        with self._lock:
            self._known(namespace, name)
            del self._claims[namespace, name]
        self._changed(f"ResourceClaim {namespace}/{name} deleted")

    def fail(self, namespace: str, name: str, error: str = "") -> None:
        """Make requests for a claim fail with the message ``error``. An empty message ends the
        fault."""
        with self._lock:
            self._errors[namespace, name] = error

    def clear(self) -> None:
        """Delete all claims and all objects that were added with ``offer``. Also end all faults
        that were set with ``fail``."""
        with self._lock:
            had_objects = bool(self._claims or self._offered)
            self._claims.clear()
            self._errors.clear()
            self._offered.clear()
        if had_objects:
            self._changed("all objects of resource.k8s.io deleted")

    def _known(self, namespace: str, name: str) -> JsonClaim:
        claim = self._claims.get((namespace, name))
        if claim is None:
            raise RequestError(f"no ResourceClaim has the name {namespace}/{name}")
        return claim

    def _change(self, namespace: str, name: str, change: Callable[[Status], Status]) -> None:
        with self._lock:
            claim = self._known(namespace, name)
            status = change(claim.get("status") or {})
            self._claims[namespace, name] = {**claim, "status": status}
        self._changed(f"the status of ResourceClaim {namespace}/{name} changed")


def _key(claim: Mapping[str, Any]) -> tuple[str, str]:
    metadata = claim["metadata"]
    return metadata.get("namespace") or "default", metadata["name"]


def _owner(pod: Pod) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": str(pod.uid),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _consumer(pod: Pod) -> dict[str, Any]:
    return {"resource": "pods", "name": pod.name, "uid": str(pod.uid)}


def _reserved(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return status.get("reservedFor") or ()


def _reserve(claim: JsonClaim, pod: Pod) -> None:
    status = claim.get("status") or {}
    # A claim without an allocation has no reservations.
    if status.get("allocation") is None:
        return
    if any(each.get("uid") == pod.uid for each in _reserved(status)):
        return
    claim["status"] = {**status, "reservedFor": [*_reserved(status), _consumer(pod)]}


def _with_statuses(pod: Pod, statuses: Mapping[str, str | None]) -> Pod:
    return pod if statuses == pod.claim_statuses else attrs.evolve(pod, claim_statuses=statuses)


def claim_of(claim: Mapping[str, Any]) -> ResourceClaim:
    """Return the fields of a ResourceClaim that the kubelet reads.

    Raises ClaimFetchError if a field has another type than in the API.
    """
    try:
        found = _claim_of(claim)
        for each in _texts(found):
            if not isinstance(each, str):
                raise TypeError(f"expected a string, not {each!r}")
        return found
    except (AttributeError, KeyError, TypeError) as error:
        text = f"the ResourceClaim cannot be decoded: {error!r}"
        raise ClaimFetchError(printable(text)) from error


def _texts(claim: ResourceClaim) -> Iterator[object]:
    """Yield all fields that are strings in the API."""
    yield from (claim.namespace, claim.name, claim.uid)
    yield from (*claim.reserved, *claim.reserved_groups)
    yield from (each for each in (claim.owner, claim.owner_group) if each is not None)
    for each in claim.results or ():
        yield from (each.driver, each.request, each.pool, each.device, *each.skips)


def _claim_of(claim: Mapping[str, Any]) -> ResourceClaim:
    metadata, status = claim["metadata"], claim.get("status") or {}
    allocation = status.get("allocation")
    # As in ``metav1.IsControlledBy``, only the controller counts as the owner.
    owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    owner: Mapping[str, Any] = owners[0] if owners else {}
    reserved = list(_reserved(status))
    return ResourceClaim(
        metadata.get("namespace") or "default",
        metadata["name"],
        metadata.get("uid") or "",
        None if allocation is None else _results(allocation),
        tuple(each.get("uid") or "" for each in reserved),
        tuple(each.get("name") or "" for each in reserved if each.get("resource") == "podgroups"),
        owner.get("uid") if owner.get("kind") == "Pod" else None,
        owner.get("name") if owner.get("kind") == "PodGroup" else None,
    )


def _results(allocation: Mapping[str, Any]) -> tuple[AllocationResult, ...]:
    devices = allocation.get("devices") or {}
    return tuple(
        AllocationResult(
            each.get("driver") or "",
            each.get("request") or "",
            each.get("pool") or "",
            each.get("device") or "",
            tuple(each.get("skipNodeOperations") or ()),
        )
        for each in devices.get("results") or ()
    )
