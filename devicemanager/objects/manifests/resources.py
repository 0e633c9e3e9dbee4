"""A container's ``resources``: limits and requests as whole numbers, validated.

Rules and texts are those of ``ValidateResourceRequirements`` and
``validateContainerResourceName`` (pkg/apis/core/validation/validation.go, v1.32).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from devicemanager.core.api.names import is_extended_resource_name, is_qualified_name
from devicemanager.core.ids import ResourceName
from devicemanager.objects.manifests.errors import invalid, key, required, wrong_type
from devicemanager.objects.manifests.fields import RESOURCES, check_known
from devicemanager.objects.manifests.quantities import (
    LARGEST,
    NANOS,
    milli_units,
    parse_quantity,
    whole_units,
)

Amounts = dict[ResourceName, int]
"""Whole numbers by resource: devices, milli-CPUs, bytes."""


class _Kind(enum.Enum):
    DEVICE = "device"
    CPU = "cpu"
    BYTES = "bytes"
    HUGE_PAGES = "huge pages"

    def overcommits(self) -> bool:
        """``IsOvercommitAllowed``: whether a request may be lower than the limit."""
        return self is _CPU or self is _BYTES


_DEVICE, _CPU, _BYTES = _Kind.DEVICE, _Kind.CPU, _Kind.BYTES


class _Quantity(NamedTuple):
    nanos: int
    kind: _Kind
    text: str

    def amount(self) -> int:
        return milli_units(self.nanos) if self.kind is _CPU else whole_units(self.nanos)


def read_resources(resources: object) -> tuple[Amounts, Amounts]:
    """Limits and requests of one container; ``None`` and ``{}`` mean none.

    Requests that are not given follow the limits (``SetDefaults_Pod``). Raises
    FieldError with a path that starts below ``resources``.
    """
    if not resources:
        if resources is None or isinstance(resources, Mapping):
            return {}, {}
        raise wrong_type("", "a mapping", resources)
    if not isinstance(resources, Mapping):
        raise wrong_type("", "a mapping", resources)
    check_known(resources, RESOURCES)
    limits = _quantities("limits", resources.get("limits"))
    requests = _quantities("requests", resources.get("requests"))
    for name, asked in requests.items():
        _check_against_limit(name, asked, limits.get(name))
    limit_amounts = {name: quantity.amount() for name, quantity in limits.items()}
    request_amounts = {name: quantity.amount() for name, quantity in requests.items()}
    requested = limit_amounts | request_amounts
    # Most containers request what limits them: one mapping is enough then.
    return limit_amounts, limit_amounts if requested == limit_amounts else requested


def _quantities(field: str, amounts: object) -> dict[ResourceName, _Quantity]:
    if amounts is None:
        return {}
    if not isinstance(amounts, Mapping):
        raise wrong_type(field, "a mapping of resource names to quantities", amounts)
    return {ResourceName(name): _quantity(field, name, value) for name, value in amounts.items()}


def _quantity(field: str, name: object, value: object) -> _Quantity:
    if not isinstance(name, str):
        raise wrong_type(field + key(name), "a resource name", name)
    kind = _kind(name)
    if isinstance(kind, str):
        raise invalid(field + key(name), name, kind)
    text = _text(field, name, value)
    try:
        nanos = parse_quantity(text)
    except ValueError as error:
        raise invalid(field + key(name), text, str(error)) from None
    if nanos < 0:
        raise invalid(field + key(name), text, "must be greater than or equal to 0")
    if kind is _DEVICE and nanos % NANOS:
        raise invalid(field + key(name), text, "must be an integer")
    return _Quantity(nanos, kind, text)


def _text(field: str, name: str, value: object) -> str:
    """A quantity as text: YAML and JSON may give it as text, a number, or null for 0."""
    if isinstance(value, str):
        return value
    if value is None:
        return "0"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(field + key(name), "a quantity", value)
    if isinstance(value, int):
        return str(max(-LARGEST, min(value, LARGEST)))
    return repr(value)


def _check_against_limit(name: str, asked: _Quantity, limit: _Quantity | None) -> None:
    if limit is None:
        if not asked.kind.overcommits():
            text = f"Limit must be set for non overcommitable resources: add {name}"
            raise required("limits", text)
    elif asked.nanos != limit.nanos and not asked.kind.overcommits():
        raise invalid("requests", asked.text, f"must be equal to {name} limit of {limit.text}")
    elif asked.nanos > limit.nanos:
        text = f"must be less than or equal to {name} limit of {limit.text}"
        raise invalid("requests", asked.text, text)


@lru_cache(maxsize=1024)
def _kind(name: str) -> _Kind | str:
    """What a resource name stands for, or what is wrong with it."""
    if is_extended_resource_name(name):
        return _Kind.DEVICE
    if name == "cpu":
        return _Kind.CPU
    if name in ("memory", "ephemeral-storage"):
        return _Kind.BYTES
    if not is_qualified_name(name):
        return "must be a qualified name, as vendor.com/device"
    if name.startswith("hugepages-"):
        return _Kind.HUGE_PAGES
    if "/" not in name:
        return "must be a standard resource for containers"
    # IsNativeResource: names of kubernetes.io itself are amounts, not devices.
    if "kubernetes.io/" in name:
        return _Kind.BYTES
    return "doesn't follow extended resource name standard"
