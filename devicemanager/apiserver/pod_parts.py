"""The subresources ``resize`` and ``ephemeralcontainers`` of pods.

Rules and texts follow ``ValidatePodResize`` and ``ValidatePodEphemeralContainersUpdate``
(pkg/apis/core/validation, v1.37), and the admission plugin PodResizeValidator. Requests that a real
API server rejects for other reasons are accepted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from devicemanager.apiserver.errors import StatusError, invalid
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.store import Object
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, pod_requests
from devicemanager.core.podstatus.resize import RESIZABLE
from devicemanager.core.podstatus.status import qos_class
from devicemanager.core.quantity import Quantity, milli_units, whole_units
from devicemanager.objects.dra.errors import FieldError, forbidden
from devicemanager.objects.dra.errors import invalid as invalid_field

__all__ = ["POD_PARTS", "changed_part", "check_capacity"]

POD_PARTS: Final = ("resize", "ephemeralcontainers")
"""Subresources that change a part of a pod's spec."""
_LISTS: Final = ("initContainers", "containers")
_SIZES: Final = ("resources", "resizePolicy")


def changed_part(target: Target, old: Object, given: Object) -> Object:
    """Return a pod with the part of ``given`` that a subresource changes.

    Raises the error 422 for a change that is not allowed.
    """
    spec = given.get("spec") or {}
    if target.subresource == "resize":
        new = _resized(old, spec)
        errors = list(_resize_errors(old, new, spec))
    else:
        new = {**old, "spec": {**old["spec"]}}
        new["spec"]["ephemeralContainers"] = list(spec.get("ephemeralContainers") or ())
        errors = list(_ephemeral_errors(old, new))
    if errors:
        raise invalid(target, target.name, errors)
    if new["spec"] != old["spec"]:
        metadata = old["metadata"]
        new["metadata"] = {**metadata, "generation": metadata.get("generation", 0) + 1}
    return new


# -- resize ------------------------------------------------------------------------------


def _resized(old: Object, spec: Mapping[str, Any]) -> Object:
    new = copy.deepcopy(old)
    for field in _LISTS:
        given = {each.get("name"): each for each in spec.get(field) or ()}
        for container in new["spec"].get(field) or ():
            wanted = given.get(container["name"], container)
            for part in _SIZES:
                if part in wanted:
                    container[part] = wanted[part]
                else:
                    container.pop(part, None)
    return new


def _resize_errors(old: Object, new: Object, spec: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in _LISTS:
        before = [each["name"] for each in old["spec"].get(field) or ()]
        if before != [each.get("name") for each in spec.get(field) or ()]:
            yield forbidden("spec", f"{field} may not be renamed or reordered on resize")
            return
    if qos_class(_pod(old)) is not qos_class(_pod(new)):
        text = "Pod QOS Class may not change as a result of resizing"
        yield invalid_field("spec", str(qos_class(_pod(new))), text)
    if not _is_supported(old):
        yield forbidden("spec", "Pod running on node without support for resize")
    for field in _LISTS:
        pairs = zip(old["spec"].get(field) or (), new["spec"].get(field) or (), strict=True)
        for index, (before, after) in enumerate(pairs):
            yield from _container_errors(f"spec.{field}[{index}].resources", before, after)


def _container_errors(path: str, before: Object, after: Object) -> Iterator[FieldError]:
    is_other = False
    for field in ("requests", "limits"):
        old = (before.get("resources") or {}).get(field) or {}
        new = (after.get("resources") or {}).get(field) or {}
        if old.keys() - new.keys():
            yield forbidden(f"{path}.{field}", f"resource {field} cannot be removed")
        is_other |= _others(old) != _others(new)
    if is_other:
        yield forbidden("spec", "only cpu and memory resources are mutable")


def _others(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items() if name not in RESIZABLE}


def _is_supported(pod: Object) -> bool:
    """True if the node of a pod reports the resources of running containers."""
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if (each.get("state") or {}).get("running") is not None:
            return each.get("resources") is not None
    return True


def check_capacity(target: Target, pod: Object, node: Mapping[str, Any] | None) -> None:
    """Raise the error 403 if the requests of a resized pod exceed the allocatable resources of its
    node."""
    allocatable = ((node or {}).get("status") or {}).get("allocatable") or {}
    requests = pod_requests(_pod(pod), lambda container: container.requests)
    found = []
    for name in RESIZABLE:
        requested, most = requests.get(name, 0), _amount(name, str(allocatable.get(name, "0")))
        if node is not None and requested > most:
            found.append(f"{name}, requested: {requested}, allocatable: {most}")
    if found:
        text = f"node didn't have enough allocatable resources: {'; '.join(found)}"
        raise StatusError(
            403,
            f'pods "{target.name}" is forbidden: {text}',
            details={"name": target.name, "kind": "pods", "causes": [{"reason": "NodeCapacity"}]},
        )


def _pod(found: Object) -> Pod:
    """Return the resources of a Pod object."""
    metadata, spec = found["metadata"], found["spec"]
    init, apps = (tuple(map(_container, spec.get(field) or ())) for field in _LISTS)
    return Pod(PodUid(metadata["uid"]), metadata["name"], metadata.get("namespace", ""), apps, init)


def _container(found: Object) -> Container:
    resources = found.get("resources") or {}
    limits = _amounts(resources.get("limits"))
    return Container(
        ContainerName(found["name"]),
        limits,
        {**limits, **_amounts(resources.get("requests"))},
        found.get("restartPolicy") == "Always",
    )


def _amounts(found: Mapping[str, Any] | None) -> dict[ResourceName, int]:
    given = found or {}
    return {name: _amount(name, str(given[name])) for name in RESIZABLE if name in given}


def _amount(name: ResourceName, text: str) -> int:
    nanos = Quantity.parse(text).nanos
    return milli_units(nanos) if name == "cpu" else whole_units(nanos)


# -- ephemeral containers ------------------------------------------------------------------


def _ephemeral_errors(old: Object, new: Object) -> Iterator[FieldError]:
    path = "spec.ephemeralContainers"
    given = {each.get("name"): each for each in new["spec"]["ephemeralContainers"]}
    for each in old["spec"].get("ephemeralContainers") or ():
        what = f'existing ephemeral containers "{each["name"]}" may not be'
        if each["name"] not in given:
            yield forbidden(path, f"{what} removed\n")
        elif given[each["name"]] != each:
            yield forbidden(path, f"{what} changed\n")
