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
    registered_at = _REGISTERED.search(text, start)
    end = registered_at.start() if registered_at else len(text)
    reader = _Reader(text, start, end)
    entries = tuple(reader.entries())
    lost = tuple(reader.lost())
    registered = dict(_resources(text, registered_at.end())) if registered_at else {}
    return Salvage(entries, registered, lost)


class _Reader:
    """Reads the entries between two places, and remembers what lies between them."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self._start = start
        self._end = end
        self._gaps: list[tuple[int, int]] = []

    def entries(self) -> Iterator[Value]:
        """The whole entries, each once."""
        position = gap = self._start
        effort = _EFFORT * (self._end - self._start)
        while effort > 0 and (match := _ENTRY.search(self._text, position, self._end)):
            try:
                value, position = decode_at(self._text, match.start())
            except Problem as problem:
                effort -= (problem.position or 0) - match.start()
                position = match.end()
                continue
            self._gaps.append((gap, match.start()))
            gap = position
            yield value
        self._gaps.append((gap, self._end))

    def lost(self) -> Iterator[str]:
        """What stood in the gaps, as far as it says whose it was."""
        for start, end in self._gaps:
            pieces = _ENTRY.split(self._text[start:end])
            # Before the first entry that begins here stands the rest of one that was cut.
            for number, piece in enumerate(pieces):
                known = _names('"PodUID":' + piece if number else piece)
                if number or known:
                    yield f"an entry{f' of {known}' if known else ''}"


def _names(piece: str) -> str:
    named = {match[1]: match[2] for match in reversed(list(_NAMED.finditer(piece)))}
    return ", ".join(
        f"{noun} {shown(named[field])}" for field, noun in _NOUNS.items() if field in named
    )


def _resources(text: str, start: int) -> Iterator[tuple[str, Value]]:
    position = start
    while match := _RESOURCE.search(text, position):
        position = match.end()
        try:
            ids, position = decode_at(text, match.end())
            name = decode_text(f'"{match[1]}"')
        except Problem:
            continue
        if isinstance(name, str):
            yield name, ids
