"""Quantities and versions as CEL values, and the functions that compare them."""

# The library has no custom types, so quantities and versions are values of one protobuf message.
# With two message types, the library would reject functions of the same name for both types. The
# text in the message is canonical, so equal values are equal messages; ``in`` and comparisons of
# lists rely on that. The fields are named like reserved words of CEL, so no expression can read
# them.

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from devicemanager.claims.attributes import SemVer
from devicemanager.core.quantity import parse_quantity

_PACKAGE, _NAME = "devicemanager.claims", "Value"
VALUE = f"{_PACKAGE}.{_NAME}"
_KIND, _TEXT = "null", "in"
_QUANTITY, _SEMVER = "quantity", "semver"

Comparable = int | SemVer
"""Quantity in nano-units, or semantic version."""


@cache
def descriptors() -> Any:
    """Return a descriptor pool with the message type for quantities and versions."""
    file = descriptor_pb2.FileDescriptorProto(name="value.proto", package=_PACKAGE, syntax="proto3")
    message = file.message_type.add(name=_NAME)
    for number, name in enumerate((_KIND, _TEXT), start=1):
        message.field.add(name=name, number=number, type="TYPE_STRING", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


@cache
def _message_class() -> Any:
    return message_factory.GetMessageClass(descriptors().FindMessageTypeByName(VALUE))


@lru_cache(maxsize=4096)
def of_nanos(nanos: int) -> Any:
    """Return the CEL value of a quantity given in nano-units."""
    return _message_class()(**{_KIND: _QUANTITY, _TEXT: str(nanos)})


@lru_cache(maxsize=4096)
def of_version(text: str) -> Any:
    """Return the CEL value of a semantic version, without build metadata.

    Raises ValueError if ``text`` is not a semantic version.
    """
    # Comparisons in CEL ignore build metadata, and equal versions must be equal messages.
    text = SemVer.parse(text).text.partition("+")[0]
    return _message_class()(**{_KIND: _SEMVER, _TEXT: text})


def quantity(text: str) -> Any:
    """Evaluate the CEL function ``quantity('1Gi')``. Raises ValueError for an invalid quantity."""
    return of_nanos(parse_quantity(text))


def _read(value: Any) -> Comparable:
    text = getattr(value, _TEXT)
    return int(text) if getattr(value, _KIND) == _QUANTITY else SemVer.parse(text)


def _is_value(value: object) -> bool:
    return type(value) is _message_class()


def _pair(one: Any, other: Any) -> tuple[Any, Any]:
    """Return both values as comparable values; parse a string as the type of the other value."""
    if isinstance(one, str):
        right, left = _pair(other, one)
        return left, right
    left = _read(one)
    if isinstance(other, str):
        return left, parse_quantity(other) if isinstance(left, int) else SemVer.parse(other)
    right = _read(other)
    if type(left) is not type(right):
        raise ValueError("cannot compare a quantity with a version: use two values of one type")
    return left, right


def compare(one: Any, other: Any) -> int:
    """Return -1 if ``one`` is less than ``other``, 0 if they are equal, else 1.

    Raises ValueError for a malformed string, and for a quantity and a version.
    """
    left, right = _pair(one, other)
    return int(left > right) - int(left < right)


def equal(one: Any, other: Any) -> bool:
    """Evaluate ``==``; a string compared with a quantity or version is parsed as that type."""
    if (_is_value(one) and isinstance(other, str)) or (isinstance(one, str) and _is_value(other)):
        return compare(one, other) == 0
    return same(one, other)


def same(one: Any, other: Any) -> bool:
    """Evaluate ``==`` without coercion: values of different types differ, except numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return _type(one) == _type(other) and bool(one == other)


def _type(value: object) -> object:
    # CEL compares int and double by value. A bool is not a number in CEL, unlike in Python.
    return float if type(value) is int else type(value)


def parses(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return a CEL function such as ``isQuantity``, which is true if ``parse`` accepts a string."""

    def accepts(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return accepts


def version_part(name: str) -> Callable[[Any], int]:
    """Return the CEL function ``major``, ``minor`` or ``patch`` of a semantic version."""

    def part(value: Any) -> int:
        version = _read(value)
        if isinstance(version, int):
            raise ValueError(f"a quantity has no {name}(): use it with a semantic version")
        return int(getattr(version, name))

    return part


ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "_<_": lambda one, other: compare(one, other) < 0,
    "_<=_": lambda one, other: compare(one, other) <= 0,
    "_>_": lambda one, other: compare(one, other) > 0,
    "_>=_": lambda one, other: compare(one, other) >= 0,
}
