"""What stands behind the damage in a file that is no JSON any more: whole entries and
resources, found by how a kubelet begins them, and the names in what lies between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from checkpoint.decode import Object, Problem, Value, decode_at, decode_text, shown

__all__ = ["Salvage", "salvage"]

_ENTRY: Final = re.compile(r'\{\s*"PodUID"\s*:')
_REGISTERED: Final = re.compile(r'"RegisteredDevices"\s*:\s*\{')
_TEXT: Final = r'"((?:[^"\\]|\\.)*)"'
_RESOURCE: Final = re.compile(rf"{_TEXT}\s*:\s*(?=\[|null)")
_NAMED: Final = re.compile(rf'"(PodUID|ContainerName|ResourceName)"\s*:\s*{_TEXT}')
_NOUNS: Final = {"PodUID": "pod", "ContainerName": "container", "ResourceName": "resource"}
_FIELDS: Final = {"PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"}
_EFFORT: Final = 2
"""How many times the length of a text may be read in vain; what is behind is given up."""


@attrs.frozen
class Salvage:
    """What was found behind the damage."""

    entries: tuple[Value, ...] = ()
    registered: Object = attrs.field(factory=dict)
    lost: tuple[str, ...] = ()
    """What stood there and cannot be read, a line for each piece that says whose it was."""


def salvage(text: str, start: int) -> Salvage:
    """Look for entries and resources from ``start`` on. Raises nothing."""
    reader = _Reader(text, start)
    entries = tuple(reader.entries())
    lost = tuple(reader.lost())
    registered_at = _REGISTERED.search(text)
    behind = max(registered_at.end(), start) if registered_at else len(text)
    return Salvage(entries, dict(_resources(text, behind)), lost)


class _Reader:
    """Reads the entries from some place on, and remembers what lies between them."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._gaps: list[tuple[int, int]] = []

    def entries(self) -> Iterator[Value]:
        """The whole entries, each once."""
        position = gap = self._start
        effort = _EFFORT * (len(self._text) - self._start)
        while effort > 0 and (match := _ENTRY.search(self._text, position)):
            try:
                value, position = decode_at(self._text, match.start())
            except Problem as problem:
                effort -= (problem.position or 0) - match.start()
                position = match.end()
                continue
            if not _is_entry(value):
                effort -= position - match.start()
                position = match.end()
                continue
            self._gaps.append((gap, match.start()))
            gap = position
            yield value
        self._gaps.append((gap, len(self._text)))

    def lost(self) -> Iterator[str]:
        """What stood in the gaps, as far as it says whose it was."""
        for start, end in self._gaps:
            pieces = _ENTRY.split(self._text[start:end])
            # Before the first entry that begins here stands the rest of one that was cut.
            for number, piece in enumerate(pieces):
                known = _names('"PodUID":' + piece if number else piece)
                if number or known:
                    yield f"an entry{f' of {known}' if known else ''}"


def _is_entry(value: Value) -> bool:
    """Not one that has run into others: a kubelet writes these fields alone."""
    return isinstance(value, dict) and value.keys() <= _FIELDS


def _names(piece: str) -> str:
    named = {match[1]: match[2] for match in reversed(list(_NAMED.finditer(piece)))}
    return ", ".join(
        f"{noun} {shown(_unquoted(named[field]))}"
        for field, noun in _NOUNS.items()
        if field in named
    )


def _unquoted(text: str) -> str:
    """A JSON text without its quotes, as what it says; as it is where it says nothing."""
    try:
        value = decode_text(f'"{text}"')
    except Problem:
        return text
    return value if isinstance(value, str) else text


def _resources(text: str, start: int) -> Iterator[tuple[str, Value]]:
    position = start
    while match := _RESOURCE.search(text, position):
        position = match.end()
        try:
            ids, position = decode_at(text, match.end())
        except Problem:
            continue
        name = _unquoted(match[1])
        # What else has a list may be an entry's; a resource of a plugin has a domain.
        if "/" in name:
            yield name, ids
