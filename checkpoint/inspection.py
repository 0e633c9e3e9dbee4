"""Read as much as possible of a damaged file, and report what is wrong with it."""

# A kubelet loads all of a file or nothing (``loads``), because half of a checkpoint would free
# devices that are allocated. A person who inspects a broken node wants to see the rest.
#
# ``inspect`` works in three steps, each with what the one before could not read:
#
# 1. Parse the whole text. If its syntax is damaged, parse the part before the damage, cut after
#    the last complete entry (``decode.readable_part``).
# 2. Search the text behind the damage for entries and resources, by the way a kubelet begins
#    them (``salvage``). Pieces in between are reported with the names they contain.
# 3. If a search of the whole text finds more entries than that, use it: the damage may be in
#    the structure that leads to the entries.
#
# Entries that are well-formed but invalid are reported and left out. Nothing is guessed.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import attrs

from checkpoint.consistency import Finding, FindingKind, inconsistencies
from checkpoint.decode import (
    Object,
    Problem,
    Value,
    decode,
    decode_at,
    decode_text,
    readable_part,
    shown,
)
from checkpoint.errors import ChecksumMismatch
from checkpoint.model import Checkpoint, PodDevicesEntry
from checkpoint.parse import read_entry, read_file, read_resource
from checkpoint.text import checksum

K = TypeVar("K")
V = TypeVar("V")


_ENTRY: Final = re.compile(r'\{\s*"PodUID"\s*:')
_REGISTERED: Final = re.compile(r'"RegisteredDevices"\s*:\s*\{')
_TEXT: Final = r'"((?:[^"\\]|\\.)*)"'
_RESOURCE: Final = re.compile(rf"{_TEXT}\s*:\s*(?=\[|null)")
_NAMED: Final = re.compile(rf'"(PodUID|ContainerName|ResourceName)"\s*:\s*{_TEXT}')
_NOUNS: Final = {"PodUID": "pod", "ContainerName": "container", "ResourceName": "resource"}
_FIELDS: Final = {"PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"}
_EFFORT: Final = 2
"""Limit of fruitless reading, as a multiple of the text's length. It keeps the search linear
for a text with many unfinished entries."""


@attrs.frozen
class Inspection:
    """The readable contents of a file, and its problems."""

    checkpoint: Checkpoint
    is_complete: bool
    """True if everything could be read; the checksum can still be wrong."""
    problems: tuple[str, ...]
    """Why a kubelet would reject the file, one line each; empty if it would not."""
    found: int | None
    """The checksum in the file; None if it is missing or not a number."""
    expected: int
    """The checksum of the contents that could be read."""
    lost: tuple[str, ...] = ()
    """One line for each entry or resource that could not be read: why, or the names that it
    contains. What follows the end of a truncated file is unknown."""
    is_text: bool = True
    """False if the file is not UTF-8; invalid bytes were read as U+FFFD."""

    def inconsistencies(self) -> tuple[Finding, ...]:
        """Return the inconsistencies of the contents."""
        # The registered resources come last in the file. If it is truncated they are missing,
        # and every entry would seem to belong to an unregistered resource.
        return tuple(
            each
            for each in inconsistencies(self.checkpoint)
            if self.is_complete or each.kind is not FindingKind.UNREGISTERED_RESOURCE
        )


def inspect(data: bytes) -> Inspection:
    """Read as much of ``data`` as possible, before and behind any damage. Does not raise."""
    found = _read(data)
    return _closer(data, found) if found.problems else found


def _read(data: bytes) -> Inspection:
    """Read the contents like a kubelet, and continue behind the damage."""
    problems: list[str] = []
    value, behind = _decoded(data, problems)
    found: int | None
    try:
        entries, registered, found = read_file(value)
    except Problem as problem:
        problems.append(str(problem))
        entries, registered, found = [], {}, None
    if problems:
        found = None  # the checksum itself may be missing or damaged
    if behind.entries:
        entries = [*(entries or ()), *behind.entries]
    if behind.registered:
        registered = {**(registered or {}), **behind.registered}
    unread: list[str] = []
    checkpoint = Checkpoint(
        None if entries is None else tuple(_each(enumerate(entries), _read_entry, unread)),
        None if registered is None else dict(_each(registered.items(), read_resource, unread)),
    )
    problems += unread
    expected = checksum(checkpoint)
    is_complete = not problems
    if is_complete and found is not None and found != expected:
        problems.append(ChecksumMismatch(expected, found).problem)
    lost = (*unread, *behind.lost)
    return Inspection(
        checkpoint, is_complete, tuple(problems), found, expected, lost, _is_text(data)
    )


def _closer(data: bytes, found: Inspection) -> Inspection:
    """Search a rejected file for entries from its start; return that result if it has more."""
    # The damage may be in the structure around the entries, or have merged two entries.
    everywhere = salvage(data.decode(errors="replace"), 0)
    unread: list[str] = []
    entries = tuple(_each(enumerate(everywhere.entries), _read_entry, unread))
    if _complete(entries) <= _complete(found.checkpoint.entries or ()):
        return found
    saved = attrs.evolve(found.checkpoint, entries=entries)
    return attrs.evolve(
        found,
        checkpoint=saved,
        is_complete=False,
        problems=(*found.problems, *unread),
        expected=checksum(saved),
        lost=(*unread, *everywhere.lost),
    )


def _complete(entries: Iterable[PodDevicesEntry]) -> int:
    """Return the number of entries that have all their names."""
    # An entry in which damage has hidden another one lacks some.
    return sum(all((e.pod_uid, e.container_name, e.resource_name)) for e in entries)


def _decoded(data: bytes, problems: list[str]) -> tuple[Value, Salvage]:
    """Return the value of the whole text, or of the part before the damage (None if there is
    none), and what was found behind it."""
    try:
        return decode(data), Salvage()
    except Problem as problem:
        problems.append(str(problem))
    text = data.decode(errors="replace")
    try:
        return decode_text(text), Salvage()
    except Problem as problem:
        part, end = readable_part(text, problem.position or 0)
    return decode_text(part) if part else None, salvage(text, end)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_entry(index: int, value: Value) -> PodDevicesEntry:
    return read_entry(value, index)


def _each(
    items: Iterable[tuple[K, Value]], read: Callable[[K, Value], V], problems: list[str]
) -> Iterator[V]:
    """Iterate over the items that can be read; add the problems of others to ``problems``."""
    for key, value in items:
        try:
            yield read(key, value)
        except Problem as problem:
            problems.append(str(problem))


@attrs.frozen
class Salvage:
    """What was found behind the damage."""

    # Values are not validated yet: ``_read`` does that for all entries alike.

    entries: tuple[Value, ...] = ()
    registered: Object = attrs.field(factory=dict)
    lost: tuple[str, ...] = ()
    """One line for each unreadable piece that contains names."""


def salvage(text: str, start: int) -> Salvage:
    """Search for entries and resources from ``start`` on. Does not raise."""
    reader = _Reader(text, start)
    entries = tuple(reader.entries())
    lost = tuple(reader.lost())
    registered_at = _REGISTERED.search(text)
    behind = max(registered_at.end(), start) if registered_at else len(text)
    return Salvage(entries, dict(_resources(text, behind)), lost)


class _Reader:
    """Reader of the entries after a position; records the gaps between them."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._gaps: list[tuple[int, int]] = []

    def entries(self) -> Iterator[Value]:
        """Iterate over the complete entries."""
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
        """Iterate over lines about the gaps that contain names."""
        for start, end in self._gaps:
            pieces = _ENTRY.split(self._text[start:end])
            # The first piece is the end of an entry whose start was lost.
            for number, piece in enumerate(pieces):
                names = _names('"PodUID":' + piece if number else piece)
                if number or names:
                    yield f"an entry{f' of {names}' if names else ''}"


def _is_entry(value: Value) -> bool:
    """True if the value has only fields that a kubelet writes."""
    # Otherwise damage has merged several entries into one.
    return isinstance(value, dict) and value.keys() <= _FIELDS


def _names(piece: str) -> str:
    named = {match[1]: match[2] for match in reversed(list(_NAMED.finditer(piece)))}
    return ", ".join(
        f"{noun} {shown(_unquoted(named[field]))}"
        for field, noun in _NOUNS.items()
        if field in named
    )


def _unquoted(text: str) -> str:
    """Decode the inside of a JSON string; return it unchanged if that fails."""
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
        # Other keys with a list belong to an entry. Resources of plugins have a domain.
        if "/" in name:
            yield name, ids
