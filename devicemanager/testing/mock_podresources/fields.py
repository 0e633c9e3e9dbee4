"""Parse decoded YAML or JSON field by field; errors name the field by its path.

A ``Read`` function takes the path and value of a field, and returns the parsed value. Functions
such as ``listed`` and ``whole`` create ``Read`` functions.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
from devicemanager.kubelet.host import numa
from devicemanager.objects.manifests.errors import described

__all__ = [
    "Read",
    "ScriptError",
    "Where",
    "fields",
    "flag",
    "id_list",
    "listed",
    "number",
    "quantity",
    "text",
    "whole",
]

T = TypeVar("T")

# The PodResources API has int64 fields, so a larger number cannot be sent.
_INT64_MAX = (1 << 63) - 1


class ScriptError(RequestError):
    """Error in a script. The text is one line with file, field and reason."""

    def __init__(self, text: str) -> None:
        # The text quotes the script, which can contain line breaks and control characters.
        super().__init__(printable(text))


class Where:
    """Path of a field in a document, such as ``pods.yaml: steps[2].pods[0].name``."""

    def __init__(self, path: str, document: str) -> None:
        self._path = path
        self._document = document

    @classmethod
    def of(cls, document: str) -> Where:
        """Return the path of a whole document. ``document`` is its name in error messages."""
        return cls("", document)

    def field(self, name: object) -> Where:
        """Return the path of a field of the mapping at this path."""
        return Where(f"{self._path}.{name}" if self._path else str(name), self._document)

    def item(self, index: int) -> Where:
        """Return the path of an item of the list at this path."""
        return Where(f"{self._path}[{index}]", self._document)

    def error(self, text: str) -> ScriptError:
        """Return an error about the value at this path."""
        return ScriptError(": ".join(filter(None, (str(self), text))))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self._document, self._path)))


Read = Callable[[Where, Any], T]
"""Function that parses the value of a field, and raises ScriptError if it is invalid."""


def fields(where: Where, value: Any, readers: Mapping[str, Read[Any]]) -> dict[str, Any]:
    """Return the parsed fields of the mapping ``value``, by field name.

    ``readers`` maps each allowed field name to the function that parses the field. Fields are
    parsed in the order of ``readers``; absent and null fields are omitted. Raises ScriptError for
    a field that is not in ``readers``, and for a value that is not a mapping.
    """
    if not isinstance(value, Mapping):
        raise where.error(f"expected a mapping, not {described(value)}")
    for name in value:
        if name not in readers:
            # Most unknown fields are typing errors.
            close = difflib.get_close_matches(str(name), readers, n=1)
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(readers)}"
            raise where.error(f"unknown field {name!r}: {hint}")
    # Parse in the order of `readers`, because some fields refer to earlier ones.
    return {
        name: read(where.field(name), value[name])
        for name, read in readers.items()
        # YAML reads a key without a value as null.
        if value.get(name) is not None
    }


def listed(read: Read[T]) -> Read[tuple[T, ...]]:
    """Return a function that parses a list; ``read`` parses each item."""

    def reader(where: Where, value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise where.error(f"expected a list, not {described(value)}")
        return tuple(read(where.item(index), each) for index, each in enumerate(value))

    return reader


def text(where: Where, value: Any) -> str:
    """Return the value, which must be a non-empty string."""
    if not isinstance(value, str) or not value:
        raise where.error(f"expected a non-empty string, not {described(value)}")
    return value


def flag(where: Where, value: Any) -> bool:
    """Return the value, which must be a Boolean."""
    if not isinstance(value, bool):
        raise where.error(f"expected true or false, not {described(value)}")
    return value


def number(least: float, *, exclusive: bool = False) -> Read[float]:
    """Return a function that parses a number of at least ``least``.

    With ``exclusive``, the number must be above ``least``. Numbers too large for a float, such as
    infinity, are rejected.
    """

    def reader(where: Where, value: Any) -> float:
        # A bool is an int in Python, and YAML reads `yes` as a bool.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not is_number
            or not (least < value if exclusive else least <= value)
            or value > sys.float_info.max
        ):
            limit = "above" if exclusive else "of at least"
            raise where.error(f"expected a number {limit} {least:g}, not {described(value)}")
        return float(value)

    return reader


def whole(least: int, most: int | None = _INT64_MAX) -> Read[int]:
    """Return a function that parses a whole number from ``least`` to ``most`` (None: no limit)."""

    def reader(where: Where, value: Any) -> int:
        limit = f"of at least {least}"
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            if most is None or value <= most:
                return value
            limit = f"of at most {most}"
        raise where.error(f"expected a whole number {limit}, not {described(value)}")

    return reader


def id_list(where: Where, value: Any) -> tuple[int, ...]:
    """Return IDs from a number, a list of numbers, or the kernel's list format (``0-3,8``)."""
    if isinstance(value, int) and not isinstance(value, bool):
        # YAML reads a single CPU as a number.
        value = [value]
    if not isinstance(value, str):
        return listed(whole(0))(where, value)
    try:
        return tuple(numa.id_list(where, value))
    except numa.NumaError as error:
        raise ScriptError(str(error)) from None


def quantity(where: Where, value: Any) -> int:
    """Return an amount in bytes, from a number or a Kubernetes quantity such as ``4Gi``."""
    from devicemanager.core.quantity import whole_units
    from devicemanager.objects.manifests.resources import parse_quantity

    try:
        size = whole_units(parse_quantity(str(value)))
    except ValueError:
        # Leads to the same error as a negative amount.
        size = -1
    if isinstance(value, bool) or size < 0:
        raise where.error(f"expected an amount in bytes such as 4Gi, not {described(value)}")
    return size
