"""What of a pod's ``status`` decides about its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.objects.manifests.errors import required, wrong_type

__all__ = ["read_backed"]

_FIELD = "extendedResourceClaimStatus"


def read_backed(status: object) -> frozenset[tuple[ContainerName, ResourceName]]:
    """The containers' extended resources that a resource claim provides, as the scheduler
    wrote it down (``status.extendedResourceClaimStatus.requestMappings``, v1.34).

    Raises FieldError with a path that starts below ``status``.
    """
    found = _mapping(status, "")
    claim = _mapping(found.get(_FIELD), _FIELD)
    mappings = claim.get("requestMappings")
    if mappings is None:
        return frozenset()
    field = f"{_FIELD}.requestMappings"
    if not isinstance(mappings, (list, tuple)):
        raise wrong_type(field, "a list", mappings)
    return frozenset(_backed(each, f"{field}[{index}]") for index, each in enumerate(mappings))


def _backed(mapping: object, field: str) -> tuple[ContainerName, ResourceName]:
    found = _mapping(mapping, field)
    names = []
    for name in ("containerName", "resourceName"):
        value = found.get(name)
        if value is None:
            raise required(f"{field}.{name}")
        if not isinstance(value, str):
            raise wrong_type(f"{field}.{name}", "a string", value)
        names.append(value)
    return ContainerName(names[0]), ResourceName(names[1])


def _mapping(value: object, field: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_type(field, "a mapping", value)
    return value
