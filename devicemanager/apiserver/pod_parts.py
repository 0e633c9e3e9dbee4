"""The subresources ``resize`` and ``ephemeralcontainers`` of pods.

Rules and texts follow ``ValidatePodResize`` and ``ValidatePodEphemeralContainersUpdate``
(pkg/apis/core/validation, v1.37), and the admission plugin PodResizeValidator. No other rules of a
real API server are checked.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from devicemanager.apiserver.errors import StatusError, invalid
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.store import Object
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, pod_requests
from devicemanager.core.podstatus.resize import RESIZABLE
from devicemanager.core.podstatus.status import qos_class
from devicemanager.core.quantity import Quantity, milli_units, whole_units
from devicemanager.objects.dra.errors import (
    FieldError,
    duplicate,
    forbidden,
    not_found,
    required,
    unsupported,
)
from devicemanager.objects.dra.errors import invalid as invalid_field
from devicemanager.objects.dra.formats import short_name

__all__ = ["POD_PARTS", "changed_part", "check_capacity"]

POD_PARTS: Final = ("resize", "ephemeralcontainers")
"""Subresources that change a part of a pod's spec."""
_LISTS: Final = ("initContainers", "containers")
_SIZES: Final = ("resources", "resizePolicy")
_POLICIES: Final = ("NotRequired", "RestartContainer")
_NOT_EPHEMERAL: Final = (
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
"""Fields of a container that an ephemeral container must not have."""


def changed_part(target: Target, old: Object, given: Object) -> Object:
    """Return a copy of the pod ``old`` with the changes in ``given``.

    The subresource in ``target`` (``resize`` or ``ephemeralcontainers``) determines which fields
    are copied from ``given``. Raises StatusError 422 for a change that is not allowed, such as a
    renamed container in a resize.
    """
    spec = given.get("spec") or {}
    if target.subresource == "resize":
        old = _with_defaults(old)
        new = _resized(old, spec)
        _check_quantities(new)
        errors = list(_resize_errors(old, new, spec))
    else:
        new = {**old, "spec": {**old["spec"]}}
        shells = list(spec.get("ephemeralContainers") or ())
        # As on a real API server, an empty list is the same as none.
        if shells or old["spec"].get("ephemeralContainers"):
            new["spec"]["ephemeralContainers"] = shells
        errors = list(_ephemeral_errors(old, new))
    if errors:
        raise invalid(target, target.name, errors)
    if new["spec"] != old["spec"]:
        metadata = old["metadata"]
        new["metadata"] = dict(metadata)
        if "generation" in metadata:
            new["metadata"]["generation"] += 1
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
    return _with_defaults(new)


def _with_defaults(pod: Object) -> Object:
    """Return a pod in which missing requests are the limits (``SetDefaults_Pod``,
    pkg/apis/core/v1)."""
    new = copy.deepcopy(pod)
    for field in _LISTS:
        for container in new["spec"].get(field) or ():
            resources = container.get("resources") or {}
            if limits := resources.get("limits"):
                resources["requests"] = {**limits, **(resources.get("requests") or {})}
    return new


def _check_quantities(pod: Object) -> None:
    """Raise the error 422 if an amount is not a quantity."""
    for field in _LISTS:
        for container in pod["spec"].get(field) or ():
            resources = container.get("resources") or {}
            for amounts in (resources.get("requests"), resources.get("limits")):
                for amount in (amounts or {}).values():
                    try:
                        Quantity.parse(str(amount))
                    except ValueError as error:
                        found = invalid_field("patch", str(amount), str(error))
                        raise StatusError(422, f'"" is invalid: {found}') from None


def _resize_errors(old: Object, new: Object, spec: Mapping[str, Any]) -> Iterator[FieldError]:
    orders = list(_order_errors(old["spec"], spec))
    if orders:
        yield from orders
        return
    pairs = [
        (f"spec.{field}[{index}]", before, after)
        for field in _LISTS
        for index, (before, after) in enumerate(
            zip(old["spec"].get(field) or (), new["spec"].get(field) or (), strict=True)
        )
    ]
    for path, _, after in pairs:
        yield from _size_errors(path, after)
    before_class, after_class = qos_class(_pod(old)), qos_class(_pod(new))
    if before_class is not after_class:
        text = "Pod QOS Class may not change as a result of resizing"
        # As on a real API server, the value is the class of the pod's status, not the new one.
        yield invalid_field("spec", str(before_class), text)
    if not _is_supported(old):
        yield forbidden("spec", "Pod running on node without support for resize")
    for path, before, after in pairs:
        yield from _removal_errors(f"{path}.resources", before, after)
    for path, before, after in pairs:
        if _fixed(before) != _fixed(after):
            is_init = path.startswith("spec.initContainers")
            text = "resources for init or sidecar containers are" if is_init else "resources are"
            field = path if is_init else "spec"
            yield forbidden(field, f"only cpu and memory {text} mutable")


def _order_errors(old: Object, new: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        before = [each["name"] for each in old.get(field) or ()]
        after = [each.get("name") for each in new.get(field) or ()]
        if len(before) != len(after):
            text = f"{field} may not be added or removed on resize"
            yield forbidden(f"spec.{field}", text)
            continue
        for index, names in enumerate(zip(before, after, strict=True)):
            if names[0] != names[1]:
                text = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{index}].name", text)


def _size_errors(path: str, container: Object) -> Iterator[FieldError]:
    """Yield the rules that resources and resize policies of a container break
    (``validateResourceRequirements`` and ``validateResizePolicy``)."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{path}.resources.{field}"
            if Quantity.parse(str(amount)).nanos < 0:
                text = "must be greater than or equal to 0"
                yield invalid_field(f"{at}[{name}]", _shown(amount), text)
            if field == "requests":
                yield from _limit_errors(f"{path}.resources", name, amount, limits.get(name))
    for each in container.get("resizePolicy") or ():
        if each.get("restartPolicy") not in _POLICIES:
            yield unsupported(f"{path}.resizePolicy", each.get("restartPolicy"), _POLICIES)


def _limit_errors(path: str, name: str, amount: Any, limit: Any) -> Iterator[FieldError]:
    is_device = "/" in name and "kubernetes.io/" not in name
    if limit is None:
        if is_device:
            text = "Limit must be set for non overcommitable resources"
            yield required(f"{path}.limits", text)
        return
    asked, most = (Quantity.parse(str(each)).nanos for each in (amount, limit))
    if asked > most or (is_device and asked != most):
        relation = "equal to" if is_device else "less than or equal to"
        text = f"must be {relation} {name} limit of {_shown(limit)}"
        yield invalid_field(f"{path}.requests", _shown(amount), text)


def _shown(amount: Any) -> str:
    return str(Quantity.parse(str(amount)))


def _removal_errors(path: str, before: Object, after: Object) -> Iterator[FieldError]:
    for field in ("requests", "limits"):
        old = (before.get("resources") or {}).get(field) or {}
        new = (after.get("resources") or {}).get(field) or {}
        if old.keys() - new.keys():
            yield forbidden(f"{path}.{field}", f"resource {field} cannot be removed")


def _fixed(container: Object) -> object:
    """Return what a resize must not change: other resources than CPU and memory, and the resize
    policy."""
    resources = container.get("resources") or {}
    others = [
        {
            name: _shown(amount)
            for name, amount in (resources.get(field) or {}).items()
            if name not in RESIZABLE
        }
        for field in ("requests", "limits")
    ]
    return others, container.get("resizePolicy") or []


def _is_supported(pod: Object) -> bool:
    """True if the node of a pod reports the resources of running containers."""
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if (each.get("state") or {}).get("running") is not None:
            return each.get("resources") is not None
    return True


def check_capacity(target: Target, pod: Object, node: Mapping[str, Any] | None) -> None:
    """Raise the error 403 if the requests of a resized pod exceed the allocatable resources of its
    node.

    ``node``: the Node object. If it is None (unknown node, or a pod without a node), do nothing.
    """
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
    listed = new["spec"].get("ephemeralContainers") or ()
    names = [each["name"] for field in _LISTS for each in new["spec"].get(field) or ()]
    for index, each in enumerate(listed):
        yield from _shell_errors(f"{path}[{index}]", each, names)
    seen = set(names)
    for index, each in enumerate(listed):
        if each.get("name") in seen:
            yield duplicate(f"{path}[{index}].name", each["name"])
        seen.add(each.get("name"))
    given = {each.get("name"): each for each in listed}
    for each in old["spec"].get("ephemeralContainers") or ():
        what = f'existing ephemeral containers "{each["name"]}" may not be'
        if each["name"] not in given:
            yield forbidden(path, f"{what} removed\n")
        elif given[each["name"]] != each:
            yield forbidden(path, f"{what} changed\n")


def _shell_errors(path: str, shell: Object, names: Collection[str]) -> Iterator[FieldError]:
    """Yield the rules that an ephemeral container breaks, except unique names
    (``validateEphemeralContainers``)."""
    if name := shell.get("name"):
        yield from short_name(f"{path}.name", name)
    else:
        yield required(f"{path}.name")
    if not shell.get("image"):
        yield required(f"{path}.image")
    target = shell.get("targetContainerName")
    if target and target not in names:
        yield not_found(f"{path}.targetContainerName", target)
    for field in _NOT_EPHEMERAL:
        if shell.get(field):
            yield forbidden(f"{path}.{field}", "cannot be set for an Ephemeral Container")
