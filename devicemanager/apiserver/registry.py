"""The API server's rules for creating, changing and deleting objects (``pkg/registry/core``)."""

from __future__ import annotations

import copy
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.apiserver.errors import (
    StatusError,
    already_exists,
    conflict,
    deletion_rejected,
    invalid,
    not_found,
    precondition_failed,
    update_rejected,
)
from devicemanager.apiserver.kinds import KINDS, Kinds, Target
from devicemanager.apiserver.pod_parts import POD_PARTS, changed_part, check_capacity
from devicemanager.apiserver.resources import HAVE_GENERATION, ResourceRules
from devicemanager.apiserver.store import Object, Store, Stored
from devicemanager.objects.dra.errors import invalid as invalid_field
from devicemanager.objects.dra.errors import required
from devicemanager.objects.status import times

__all__ = ["NOT_READY", "Registry", "is_terminal", "timestamp"]

NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_GRACE: Final = 30
_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAME_ATTEMPTS: Final = 8
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names (``k8s.io/apimachinery/pkg/util/rand``)."""
_LONGEST_BASE: Final = 58
_MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Fields of ``metadata`` that an update cannot change."""


def timestamp(seconds: float = 0) -> str:
    """Return the current time plus ``seconds``, in the format of ``metav1.Time``."""
    return times.timestamp(time.time() + seconds)


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """True if the phase of the pod is Succeeded or Failed."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


class Registry:
    """Store that applies the API server's rules to every change of an object.

    Methods raise StatusError if a rule is violated. Thread-safe.
    """

    def __init__(
        self,
        store: Store,
        kinds: Kinds | None = None,
        *,
        stores_resource_health: bool = True,
        rules: ResourceRules | None = None,
    ) -> None:
        """Create a registry for a store.

        ``kinds``: the resource types that the server knows; None means only the built-in types.
        ``stores_resource_health``: True if the feature gate ResourceHealthStatus is on.
        ``rules``: rules for resource.k8s.io; None for rules with the default feature gates.
        """
        self.store = store
        self.kinds = kinds or Kinds()
        self.rules = rules or ResourceRules()
        self.stores_resource_health = stores_resource_health

    def create_namespaces(self) -> None:
        """Create the namespaces that every cluster has."""
        for name in _NAMESPACES:
            self.create(Target(KINDS["namespaces"]), {"metadata": {"name": name}})

    def copied(self) -> Registry:
        """Return a registry for a copy of the store, for a dry run."""
        return Registry(
            self.store.copied(),
            self.kinds.copied(),
            stores_resource_health=self.stores_resource_health,
            rules=self.rules,
        )

    # -- create ----------------------------------------------------------------------

    def create(self, target: Target, given: Object) -> Stored:
        """Create an object (POST) and return it."""
        kind = target.kind
        value = copy.deepcopy(given)
        metadata = value.setdefault("metadata", {})
        self._check_namespace(target, metadata)
        given_name = metadata.get("name")
        value |= {"apiVersion": kind.api_version, "kind": kind.name}
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        # ``WipeObjectMetaSystemFields``, registry/rest/meta.go, v1.37
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(field, None)
        if kind.namespaced:
            metadata["namespace"] = target.namespace
        _set_defaults(kind.name, value)
        if kind.name in HAVE_GENERATION:
            metadata["generation"] = 1
        self.rules.prepare(target, value)
        with self.store.lock:
            # If a generated name is in use, generate another one (``RetryGenerateName``, v1.32).
            for _ in range(_NAME_ATTEMPTS):
                name = metadata["name"] = given_name or _generated(metadata)
                self._check_rules(target, value)
                if self.store.get(kind, target.namespace, name) is None:
                    self._define(value)
                    return self.store.put(kind, self.rules.stored(target, value))
                if given_name:
                    break
            raise already_exists(target, name)

    def _check_namespace(self, target: Target, metadata: Object) -> None:
        if not target.kind.namespaced:
            return
        _check_same_namespace(target, metadata)
        namespaces = KINDS["namespaces"]
        if self.store.get(namespaces, "", target.namespace) is None:
            raise not_found(Target(namespaces, name=target.namespace))

    def _check_rules(self, target: Target, new: Object, old: Object | None = None) -> None:
        """Raise the error 422 for an object without a name, or one that breaks a rule of
        resource.k8s.io."""
        namespace = self.store.get(KINDS["namespaces"], "", target.namespace)
        labels = {} if namespace is None else namespace.value["metadata"].get("labels") or {}
        broken = self.rules.broken(target, new, old, labels)
        if not broken and not new["metadata"]["name"]:
            broken = [required("metadata.name", "name or generateName is required")]
        if broken:
            raise invalid(target, new["metadata"].get("name", ""), broken)

    def _define(self, value: Object) -> None:
        """Serve the kind that a CustomResourceDefinition defines."""
        if value["kind"] == "CustomResourceDefinition":
            try:
                self.kinds.define(value)
            except ValueError as error:
                raise StatusError(422, str(error)) from None

    def bind(self, target: Target, binding: Object) -> None:
        """Bind a pod to a node (POST of ``pods/NAME/binding``)."""

        def bound(pod: Object) -> Object:
            if pod["spec"].get("nodeName"):
                raise conflict(target, "pod is already assigned to a node")
            pod["spec"]["nodeName"] = binding["target"]["name"]
            scheduled = {"type": "PodScheduled", "status": "True"}
            others = [
                each
                for each in pod["status"].get("conditions") or ()
                if each["type"] != scheduled["type"]
            ]
            scheduled["lastTransitionTime"] = timestamp()
            pod["status"]["conditions"] = [*others, scheduled]
            return pod

        self.change(target, bound)

    # -- change ----------------------------------------------------------------------

    def replace(self, target: Target, given: Object) -> Stored:
        """Replace an object (PUT) and return the new object."""
        metadata = given.get("metadata", {})
        version = metadata.get("resourceVersion")
        _check_same_namespace(target, metadata)
        if metadata.get("name", target.name) != target.name:
            raise StatusError(
                400,
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({target.name})",
            )

        if not version and (target.kind.name, target.api_version) == _VERSIONED:
            error = invalid_field("metadata.resourceVersion", 0, "must be specified for an update")
            raise update_rejected(target, error)

        def replaced(old: Object) -> Object:
            return {**copy.deepcopy(given), "apiVersion": old["apiVersion"], "kind": old["kind"]}

        return self.change(target, replaced, version, metadata.get("uid"))

    def change(
        self,
        target: Target,
        change: Callable[[Object], Object],
        version: str | None = None,
        uid: str | None = None,
    ) -> Stored:
        """Replace an object with the result of the function ``change``. Return the new object.

        ``change`` gets a copy of the object. The replacement is atomic.

        If ``target`` names the subresource ``status``, only changes of ``status`` are stored. If
        ``target`` names an object that has this subresource, changes of ``status`` are ignored.

        ``version`` and ``uid`` are preconditions: the error 409 is raised if the object has another
        version or UID. If ``version`` is None, ``metadata.resourceVersion`` in the result of
        ``change`` is used instead. The error 422 is raised if ``change`` changes the UID.
        """
        kind = target.kind
        with self.store.lock:
            stored = self._get(target)
            old = stored.value
            # Readers and watches share stored objects, so change a copy.
            given = change(copy.deepcopy(old))
            version = version or given.get("metadata", {}).get("resourceVersion")
            if version and version != old["metadata"]["resourceVersion"]:
                raise conflict(target, _MODIFIED)
            _check_uid(target, given, old, uid)
            new = self._merged(target, old, given)
            self._check_rules(target, new, old)
            new = self.rules.stored(target, new)
            # As in etcd3 storage, a write without a change creates no version and no event.
            if new == old:
                return stored
            if _can_be_removed(new):
                return self._remove(target, new)
            return self.store.put(kind, new)

    def _merged(self, target: Target, old: Object, given: Object) -> Object:
        if target.subresource == "status":
            new = {**old, "metadata": dict(old["metadata"]), "status": given.get("status", {})}
            self.rules.prepare_status(target, new, old)
            if target.kind.name == "Pod" and not self.stores_resource_health:
                _drop_resource_health(new["status"])
            return new
        if target.subresource in POD_PARTS:
            new = changed_part(target, old, given)
            if target.subresource == "resize":
                check_capacity(target, new, self._node_of(new))
            return new
        new = dict(given)
        metadata = {
            **given.get("metadata", {}),
            **{key: old["metadata"][key] for key in _IMMUTABLE if key in old["metadata"]},
        }
        new["metadata"] = {**metadata, "resourceVersion": old["metadata"]["resourceVersion"]}
        if target.kind.has_status and target.subresource != "binding":
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        self.rules.prepare(target, new, old)
        # A binding does not count as a change of the spec.
        is_counted = target.kind.name in HAVE_GENERATION and target.subresource != "binding"
        if is_counted and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return new

    def _node_of(self, pod: Object) -> Object | None:
        stored = self.store.get(KINDS["nodes"], "", pod["spec"].get("nodeName") or "")
        return None if stored is None else stored.value

    def _get(self, target: Target) -> Stored:
        stored = self.store.get(target.kind, target.namespace, target.name)
        if stored is None:
            raise not_found(target)
        return stored

    # -- delete ----------------------------------------------------------------------

    def delete(self, target: Target, options: Mapping[str, Any]) -> Stored:
        """Delete an object and return its last state.

        Objects with finalizers, and pods whose containers a kubelet must stop, are only marked for
        deletion (``registry/core/pod/strategy.go``, CheckGracefulDelete).
        """
        with self.store.lock:
            stored = self._get(target)
            old = stored.value
            _check_preconditions(target, old, options.get("preconditions") or {})
            metadata, requested = {**old["metadata"]}, options.get("gracePeriodSeconds")
            before = metadata.get("deletionGracePeriodSeconds")
            if before is None:
                grace = _grace(old, requested) if target.kind == KINDS["pods"] else 0
                metadata["deletionTimestamp"] = timestamp(grace)
                if "generation" in metadata:
                    metadata["generation"] += 1
            # A second deletion can only shorten the grace period, counted from the first one. It
            # keeps the generation (``BeforeDelete``, registry/rest/delete.go).
            elif requested is not None and (grace := _seconds(requested)) < before:
                due = (times.seconds_of(metadata["deletionTimestamp"]) or 0) - before + grace
                # The new time is never in the past; only a request for 0 seconds gets 0 seconds.
                if due < (now := time.time()):
                    due, grace = now, min(grace, 1)
                metadata["deletionTimestamp"] = times.timestamp(due)
            else:
                return stored
            metadata["deletionGracePeriodSeconds"] = grace
            new = {**old, "metadata": metadata}
            if _can_be_removed(new):
                return self._remove(target)
            return self.store.put(target.kind, new)

    def _remove(self, target: Target, last: Object | None = None) -> Stored:
        if target.kind.name == "CustomResourceDefinition":
            self.kinds.remove(target.name)
        return self.store.remove(target.kind, target.namespace, target.name, last)


_VERSIONED: Final = ("DeviceTaintRule", "resource.k8s.io/v1")
"""Kinds and ``apiVersion`` values whose updates must contain a version."""


def _check_same_namespace(target: Target, metadata: Object) -> None:
    if target.kind.namespaced and metadata.get("namespace") not in (None, "", target.namespace):
        text = "the namespace of the provided object does not match the namespace sent on the "
        raise StatusError(400, f"{text}request")


def _check_uid(target: Target, given: Object, old: Object, wanted: str | None) -> None:
    found = old["metadata"]["uid"]
    if wanted and wanted != found:
        raise precondition_failed(target, wanted, found)
    uid = given.get("metadata", {}).get("uid") or found
    if uid != found:
        error = invalid_field("metadata.uid", uid, "field is immutable")
        raise invalid(target, target.name, [error])


def _check_preconditions(target: Target, old: Object, wanted: Mapping[str, Any]) -> None:
    for key, field in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) not in (None, old["metadata"][key]):
            raise deletion_rejected(target, field, wanted[key], old["metadata"][key])


def _grace(pod: Object, requested: int | None) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds") if requested is None else requested
    # No kubelet has to stop containers of such a pod.
    if not pod["spec"].get("nodeName") or is_terminal(pod):
        return 0
    return _GRACE if seconds is None else _seconds(seconds)


def _seconds(grace: int) -> int:
    # A negative value means one second (``BeforeDelete``).
    seconds = int(grace)
    return seconds if seconds >= 0 else 1


def _can_be_removed(value: Object) -> bool:
    """True if the object is marked for deletion and has no finalizers and no grace period."""
    metadata = value["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _generated(metadata: Mapping[str, Any]) -> str:
    """Return a random name with the prefix ``generateName``; empty if there is no prefix."""
    base = str(metadata.get("generateName") or "")
    ending = "".join(secrets.choice(_NAME_LETTERS) for _ in range(5))
    return base[:_LONGEST_BASE] + ending if base else ""


def _set_defaults(kind: str, value: Object) -> None:
    if kind == "Pod":
        value.setdefault("status", {}).setdefault("phase", "Pending")
        spec = value.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", _GRACE)
    elif kind == "Node":
        # The admission plugin TaintNodesByCondition also taints nodes that are Ready when created.
        taints = value.setdefault("spec", {}).setdefault("taints", [])
        if NOT_READY["key"] not in (taint["key"] for taint in taints):
            taints.append(dict(NOT_READY))


def _drop_resource_health(status: Object) -> None:
    for container in status.get("containerStatuses") or ():
        container.pop("allocatedResourcesStatus", None)
