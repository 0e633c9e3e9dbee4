"""Parse and validate the limits and requests in a container's ``resources``."""

# Rules and texts are those of ``ValidateResourceRequirements`` and
# ``validateContainerResourceName`` (pkg/apis/core/validation/validation.go, v1.32).
#
# Quantities are not parsed by the ``kubernetes`` package: importing it takes a quarter of a
# second, and its parser accepts some quantities that the API server rejects.

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from devicemanager.core.api.names import is_extended_resource_name, is_qualified_name
from devicemanager.core.ids import ResourceName
from devicemanager.core.quantity import LARGEST, NANOS, milli_units, whole_units
from devicemanager.core.quantity import parse_quantity as parse_any_quantity
from devicemanager.objects.manifests.errors import invalid, key, required, wrong_type
from devicemanager.objects.manifests.fields import RESOURCES, check_known

Amounts = dict[ResourceName, int]
"""Whole numbers by resource name: devices, milli-CPUs or bytes."""


class _Kind(enum.Enum):
    DEVICE = "device"
    CPU = "cpu"
    BYTES = "bytes"
    HUGE_PAGES = "huge pages"

    def overcommits(self) -> bool:
        """True if a request may be lower than its limit (``IsOvercommitAllowed``)."""
        return self is _CPU or self is _BYTES


_DEVICE, _CPU, _BYTES = _Kind.DEVICE, _Kind.CPU, _Kind.BYTES


class _Quantity(NamedTuple):
    nanos: int
    kind: _Kind
    text: str

    def amount(self) -> int:
        return milli_units(self.nanos) if self.kind is _CPU else whole_units(self.nanos)


def parse_quantity(text: str) -> int:
    """Parse a quantity into nano-units, rounded away from zero.

    A quantity above the maximum becomes the maximum, as in ``ParseQuantity`` of
    k8s.io/apimachinery/pkg/api/resource (v1.32). Raises ValueError with Go's error text.
    """
    return parse_any_quantity(text, LARGEST)


def read_resources(resources: object) -> tuple[Amounts, Amounts]:
    """Parse a container's ``resources`` into limits and requests, both empty if absent.

    A missing request is set to the limit (``SetDefaults_Pod``). Raises FieldError with a path
    below ``resources``.
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
    for name, request in requests.items():
        _check_against_limit(name, request, limits.get(name))
    limit_amounts = {name: quantity.amount() for name, quantity in limits.items()}
    request_amounts = {name: quantity.amount() for name, quantity in requests.items()}
    requested = limit_amounts | request_amounts
    # Requests equal limits in most containers, so one shared mapping saves memory.
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
    """Return a quantity as text. In YAML and JSON, a quantity can be text, a number, or null for 0.
    Raises FieldError for another type."""
    if isinstance(value, str):
        return value
    if value is None:
        return "0"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(field + key(name), "a quantity", value)
    # Limit the value first: Python cannot convert integers with thousands of digits to text.
    if isinstance(value, int):
        return str(max(-LARGEST, min(value, LARGEST)))
    return repr(value)


def _check_against_limit(name: str, request: _Quantity, limit: _Quantity | None) -> None:
    if limit is None:
        if not request.kind.overcommits():
            text = f"Limit must be set for non overcommitable resources: add {name}"
            raise required("limits", text)
    elif request.nanos != limit.nanos and not request.kind.overcommits():
        raise invalid("requests", request.text, f"must be equal to {name} limit of {limit.text}")
    elif request.nanos > limit.nanos:
        text = f"must be less than or equal to {name} limit of {limit.text}"
        raise invalid("requests", request.text, text)


@lru_cache(maxsize=1024)
def _kind(name: str) -> _Kind | str:
    """Return the kind of a resource name, or the reason (text) why the name is invalid."""
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
    # IsNativeResource: resources of the kubernetes.io domain are amounts, not devices.
    if "kubernetes.io/" in name:
        return _Kind.BYTES
    return "doesn't follow extended resource name standard"
