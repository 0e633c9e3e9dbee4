"""Reading plain data field by field; an error names the field by its path."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable
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

_MOST_LISTED = 1 << 16


class ScriptError(RequestError):
    """A script cannot be used. The text is one line: file, field, what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class Where:
    """The path of a field: ``pods.yaml: steps[2].pods[0].name``."""

    def __init__(self, path: str, document: str) -> None:
        self._path = path
        self._document = document

    @classmethod
    def of(cls, document: str) -> Where:
        """A whole document."""
        return cls("", document)

    def field(self, name: object) -> Where:
        """A field of the mapping here."""
        return Where(f"{self._path}.{name}" if self._path else str(name), self._document)

    def item(self, index: int) -> Where:
        """An item of the list here."""
        return Where(f"{self._path}[{index}]", self._document)

    def wrong(self, text: str) -> ScriptError:
        """What is wrong here."""
        return ScriptError(": ".join(filter(None, (self._document, self._path, text))))


Read = Callable[[Where, Any], T]
"""From a field's value to what it means. Raises ScriptError."""


def fields(where: Where, value: Any, readers: Mapping[str, Read[Any]]) -> dict[str, Any]:
    """What the fields of a mapping mean, of those that are there; null is as good as none.
    They are read in the order of ``readers``."""
    if not isinstance(value, Mapping):
        raise where.wrong(f"a mapping is expected, not {described(value)}")
    for name in value:
        if name not in readers:
            close = difflib.get_close_matches(str(name), readers, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(readers)}"
            raise where.wrong(f"unknown field {name!r}: {hint}")
    return {
        name: read(where.field(name), value[name])
        for name, read in readers.items()
        if value.get(name) is not None
    }


def listed(read: Read[T]) -> Read[tuple[T, ...]]:
    """A list of what ``read`` reads."""

    def reader(where: Where, value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise where.wrong(f"a list is expected, not {described(value)}")
        return tuple(read(where.item(index), each) for index, each in enumerate(value))

    return reader


def text(where: Where, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise where.wrong(f"a text is expected, not {described(value)}")
    return value


def flag(where: Where, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise where.wrong(f"true or false is expected, not {described(value)}")
    return value


def number(least: float, *, exclusive: bool = False) -> Read[float]:
    """A number from ``least``, or above it."""

    def reader(where: Where, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (least < value if exclusive else least <= value < float("inf")):
            above = "above" if exclusive else "from"
            raise where.wrong(f"a number {above} {least:g} is expected, not {described(value)}")
        return float(value)

    return reader


def whole(least: int) -> Read[int]:
    """A whole number from ``least``."""

    def reader(where: Where, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise where.wrong(f"a whole number from {least} is expected, not {described(value)}")
        return value

    return reader


def id_list(where: Where, value: Any) -> tuple[int, ...]:
    """Numbers as a list, or in the kernel's form such as ``0-3,8``."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, str):
        return listed(whole(0))(where, value)
    ids: list[int] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise where.wrong(f"{part!r} is neither a number nor a range such as 0-3")
        ends = int(first), int(last or first)
        if ends[1] < ends[0]:
            raise where.wrong(f"{part!r} is no range from a lower to a higher number")
        if ends[1] - ends[0] >= _MOST_LISTED:
            raise where.wrong(f"{part!r} are more than {_MOST_LISTED} numbers")
        ids.extend(range(ends[0], ends[1] + 1))
    return tuple(ids)


def quantity(where: Where, value: Any) -> int:
    """Bytes: a number, or a Kubernetes quantity such as ``4Gi``."""
    from devicemanager.core.quantity import whole_units
    from devicemanager.objects.manifests.resources import parse_quantity

    try:
        size = whole_units(parse_quantity(str(value)))
    except ValueError:
        size = -1
    if isinstance(value, bool) or size < 0:
        raise where.wrong(f"a quantity of bytes such as 4Gi is expected, not {described(value)}")
    return size
