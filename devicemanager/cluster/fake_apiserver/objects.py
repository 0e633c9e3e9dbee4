"""What the API server does to objects as they come, change and go."""

from __future__ import annotations

import copy
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target
from devicemanager.cluster.fake_apiserver.store import Object, Store, Stored
from devicemanager.objects.status import times

__all__ = ["Objects", "has_ended", "timestamp"]

NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_GRACE: Final = 30
_NAMES_TRIED: Final = 8
_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
"""Metadata that no update changes."""

Change = Callable[[Object], Object]


def timestamp(seconds: float = 0) -> str:
    """``metav1.Time`` of now, or of so many seconds later."""
    return times.timestamp(time.time() + seconds)


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's phase is one for good."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


class Objects:
    """The store with the rules of the registry (``pkg/registry/core``) on top. Methods raise
    Rejection."""

    def __init__(self, store: Store, *, keeps_resource_health: bool = True) -> None:
        """``keeps_resource_health``: the gate ResourceHealthStatus."""
        self.store = store
        self.keeps_resource_health = keeps_resource_health

    # -- create ----------------------------------------------------------------------

    def create(self, target: Target, given: Object) -> Stored:
        """POST of an object."""
        kind = target.kind
        if kind.namespaced and not target.namespace:
            raise Rejection(405, "the server does not allow this method on the requested resource")
        value = copy.deepcopy(given)
        metadata = value.setdefault("metadata", {})
        given_name = metadata.get("name")
        value |= {"apiVersion": kind.api_version, "kind": kind.name}
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        if kind.namespaced:
            metadata["namespace"] = target.namespace
        _default(kind.name, value)
        with self.store.lock:
            # A generated name that is taken is made again (``RetryGenerateName``, v1.32).
            for _ in range(_NAMES_TRIED):
                name = metadata["name"] = given_name or _generated(metadata)
                if self.store.get(kind, target.namespace, name) is None:
                    return self.store.put(kind, value)
                if given_name:
                    break
            raise Rejection.exists(target, name)

    def bind(self, target: Target, binding: Object) -> None:
        """POST of ``pods/NAME/binding``."""

        def bound(pod: Object) -> Object:
            if pod["spec"].get("nodeName"):
                raise Rejection.conflict(target, "pod is already assigned to a node")
            pod["spec"]["nodeName"] = binding["target"]["name"]
            scheduled = {"type": "PodScheduled", "status": "True"}
            conditions = pod["status"].setdefault("conditions", [])
            conditions.append({**scheduled, "lastTransitionTime": timestamp()})
            return pod

        self.change(target, bound)

    # -- change ----------------------------------------------------------------------

    def replace(self, target: Target, given: Object) -> Stored:
        """PUT."""
        version = given.get("metadata", {}).get("resourceVersion")

        def replaced(old: Object) -> Object:
            return {**copy.deepcopy(given), "apiVersion": old["apiVersion"], "kind": old["kind"]}

        return self.change(target, replaced, version)

    def change(self, target: Target, change: Change, version: str | None = None) -> Stored:
        """Let ``change`` make the new object of a copy of the old one, in one step. Of a
        subresource only the status is taken, of an object anything else."""
        kind = target.kind
        with self.store.lock:
            stored = self._known(target)
            old = stored.value
            given = change(copy.deepcopy(old))
            version = version or given.get("metadata", {}).get("resourceVersion")
            if version and version != old["metadata"]["resourceVersion"]:
                raise Rejection.conflict(target, "the object has been modified")
            uid = given.get("metadata", {}).get("uid")
            if uid and uid != old["metadata"]["uid"]:
                raise Rejection.conflict(target, f"Precondition failed: UID in precondition: {uid}")
            new = self._taken(target, old, given)
            if new == old:
                return stored
            if _is_over(new):
                return self.store.remove(kind, target.namespace, target.name)
            return self.store.put(kind, new)

    def _taken(self, target: Target, old: Object, given: Object) -> Object:
        if target.below == "status":
            new = {**old, "metadata": dict(old["metadata"]), "status": given.get("status", {})}
            if target.kind.name == "Pod" and not self.keeps_resource_health:
                _drop_resource_health(new["status"])
            return new
        new = dict(given)
        metadata = {
            **given.get("metadata", {}),
            **{key: old["metadata"][key] for key in _KEPT if key in old["metadata"]},
        }
        new["metadata"] = {**metadata, "resourceVersion": old["metadata"]["resourceVersion"]}
        if target.kind.name in ("Pod", "Node") and target.below != "binding":
            new["status"] = old.get("status", {})
        return new

    def _known(self, target: Target) -> Stored:
        stored = self.store.get(target.kind, target.namespace, target.name)
        if stored is None:
            raise Rejection.not_found(target)
        return stored

    # -- delete ----------------------------------------------------------------------

    def delete(self, target: Target, options: Mapping[str, Any]) -> Stored:
        """DELETE: at once, or what a pod's node and finalizers have to do first comes first
        (``registry/core/pod/strategy.go``, CheckGracefulDelete)."""
        with self.store.lock:
            old = self._known(target).value
            _check(target, old, options.get("preconditions") or {})
            grace = _grace(old, options.get("gracePeriodSeconds")) if _is_pod(target) else 0
            before = old["metadata"].get("deletionGracePeriodSeconds")
            if before is not None and grace >= before > 0:
                return self._known(target)
            new = {**old, "metadata": {**old["metadata"]}}
            new["metadata"] |= {
                "deletionTimestamp": timestamp(grace),
                "deletionGracePeriodSeconds": grace,
            }
            if _is_over(new):
                return self.store.remove(target.kind, target.namespace, target.name)
            return self.store.put(target.kind, new)


def _is_pod(target: Target) -> bool:
    return target.kind is KINDS["pods"]


def _check(target: Target, old: Object, wanted: Mapping[str, Any]) -> None:
    for key in ("uid", "resourceVersion"):
        if wanted.get(key) not in (None, old["metadata"][key]):
            raise Rejection.conflict(
                target, f"Precondition failed: {key} is {old['metadata'][key]}"
            )


def _grace(pod: Object, asked: int | None) -> int:
    seconds = asked if asked is not None else pod["spec"].get("terminationGracePeriodSeconds")
    unbound = not pod["spec"].get("nodeName")
    if unbound or has_ended(pod):
        return 0
    return _GRACE if seconds is None else max(0, int(seconds))


def _is_over(value: Object) -> bool:
    """To be deleted, and nobody has anything left to do about it."""
    metadata = value["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _generated(metadata: Mapping[str, Any]) -> str:
    if not metadata.get("generateName"):
        raise Rejection(422, "metadata.name: Required value: name or generateName is required")
    return f"{metadata['generateName']}{secrets.token_hex(3)[:5]}"


def _default(kind: str, value: Object) -> None:
    if kind == "Pod":
        value.setdefault("status", {}).setdefault("phase", "Pending")
        spec = value.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", _GRACE)
    elif kind == "Node":
        # Admission TaintNodesByCondition: even for a node that is created Ready.
        taints = value.setdefault("spec", {}).setdefault("taints", [])
        if NOT_READY["key"] not in (taint["key"] for taint in taints):
            taints.append(dict(NOT_READY))


def _drop_resource_health(status: Object) -> None:
    for container in status.get("containerStatuses") or ():
        container.pop("allocatedResourcesStatus", None)
