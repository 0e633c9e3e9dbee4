"""Read as much as possible of a damaged checkpoint file, and describe the damage."""

# A kubelet loads the whole file or nothing (``loads``), because half of a checkpoint would free
# devices that are allocated. A person who inspects a broken node wants to see everything that is
# readable.
#
# ``inspect`` works in three steps. Each step handles what the previous step could not read:
#
# 1. Parse the whole text. If its syntax is damaged, parse the part before the damage, cut after
#    the last complete entry (``decode.readable_part``).
# 2. Search the text behind the damage for the beginnings of entries and resources (``salvage``).
#    Text between the entries that were found is reported with the names it contains.
# 3. Search the whole text in the same way. If this finds more entries, use them: the damage may be
#    in the structure around the entries.
#
# Entries that are valid JSON but have wrong contents are reported and left out. Missing data is
# never guessed.

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
    is_text,
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
"""Maximum number of characters that are decoded without finding an entry, as a multiple of the
text's length. It keeps the search linear for a text with many unfinished entries."""


@attrs.frozen
class Inspection:
    """Readable contents of a checkpoint file, and its problems."""

    checkpoint: Checkpoint
    is_complete: bool
    """True if all entries and resources could be read. The checksum can still be wrong."""
    problems: tuple[str, ...]
    """Reasons for which a kubelet would reject the file, one line each; empty if a kubelet accepts
    it."""
    found: int | None
    """Checksum in the file; None if it is missing, invalid or possibly damaged."""
    expected: int
    """Checksum computed from the contents that could be read."""
    lost: tuple[str, ...] = ()
    """One line for each entry or resource that could not be read. The line has the reason, or the
    names that are still readable, such as the pod UID. Entries that were cut off with the end of
    the file are unknown and have no line."""
    is_text: bool = True
    """True if the file is UTF-8. Otherwise invalid bytes were read as U+FFFD."""

    def inconsistencies(self) -> tuple[Finding, ...]:
        """Return the inconsistencies in the readable contents, such as a device that is allocated
        to two pods."""
        # The registered resources come last in the file, so a truncated file lacks them. Every
        # entry would then seem to belong to an unregistered resource.
        return tuple(
            each
            for each in inconsistencies(self.checkpoint)
            if self.is_complete or each.kind is not FindingKind.UNREGISTERED_RESOURCE
        )


def inspect(data: bytes) -> Inspection:
    """Return the readable contents of the checkpoint file ``data``, and its problems. Contents
    after a damaged part are included. Raises nothing."""
    found = _read(data)
    return _closer(data, found) if found.problems else found


def _read(data: bytes) -> Inspection:
    """Read the contents as a kubelet does. If they are damaged, also read the text behind the
    damage."""
    problems: list[str] = []
    value, behind = _decoded(data, problems)
    found: int | None
    try:
        entries, registered, found = read_file(value)
    except Problem as problem:
        problems.append(str(problem))
        entries, registered, found = [], {}, None
    # If anything is damaged, the checksum may be damaged, too.
    found = None if problems else found
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
    if is_complete and (found or 0) != expected:
        problems.append(ChecksumMismatch(expected, found).problem)
    lost = (*unread, *behind.lost)
    return Inspection(
        checkpoint, is_complete, tuple(problems), found, expected, lost, is_text(data)
    )


def _closer(data: bytes, found: Inspection) -> Inspection:
    """Search the whole text of a rejected file for entries. Return the result of the search if it
    has more complete entries than ``found``; otherwise return ``found``."""
    # The damage may be in the structure around the entries, or have merged two entries into one.
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
    """Return the number of entries that have pod UID, container name and resource name."""
    # If damage has merged two entries, the merged entry lacks a name.
    return sum(all((e.pod_uid, e.container_name, e.resource_name)) for e in entries)


def _decoded(data: bytes, problems: list[str]) -> tuple[Value, Salvage]:
    """Decode the whole text, or the part before the damage. Return its value (None if nothing is
    readable) and what ``salvage`` found behind the damage."""
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


def _read_entry(index: int, value: Value) -> PodDevicesEntry:
    return read_entry(value, index)


def _each(
    items: Iterable[tuple[K, Value]], read: Callable[[K, Value], V], problems: list[str]
) -> Iterator[V]:
    """Iterate over the results of ``read`` for all items. Items that cannot be read are skipped,
    and their problems are added to ``problems``."""
    for key, value in items:
        try:
            yield read(key, value)
        except Problem as problem:
            problems.append(str(problem))


@attrs.frozen
class Salvage:
    """Entries and resources that were found in a damaged text."""

    # Values are not validated yet: ``_read`` validates all entries, wherever they come from.

    entries: tuple[Value, ...] = ()
    registered: Object = attrs.field(factory=dict)
    lost: tuple[str, ...] = ()
    """One line for each incomplete entry, with the names that can be read, such as the pod UID."""


def salvage(text: str, start: int) -> Salvage:
    """Return the entries and resources found in a damaged text at or after position ``start``.
    Raises nothing."""
    reader = _Reader(text, start)
    entries = tuple(reader.entries())
    lost = tuple(reader.lost())
    registered_at = _REGISTERED.search(text)
    behind = max(registered_at.end(), start) if registered_at else len(text)
    return Salvage(entries, dict(_resources(text, behind)), lost)


class _Reader:
    """Reader of the entries behind a position. It records the gaps between the entries."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._gaps: list[tuple[int, int]] = []

    def entries(self) -> Iterator[Value]:
        """Iterate over the values of the complete entries."""
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
        """Iterate over one line for each incomplete entry in the gaps, with the names in its
        text."""
        for start, end in self._gaps:
            pieces = _ENTRY.split(self._text[start:end])
            # The first piece is the end of an entry whose beginning is damaged.
            for number, piece in enumerate(pieces):
                names = _names('"PodUID":' + piece if number else piece)
                if number or names:
                    yield f"an entry{f' of {names}' if names else ''}"


def _is_entry(value: Value) -> bool:
    """True if the value is an object that has only the fields of a kubelet's entry."""
    # An object with other fields results from damage that has merged several entries.
    return isinstance(value, dict) and value.keys() <= _FIELDS


def _names(piece: str) -> str:
    named = {match[1]: match[2] for match in reversed(list(_NAMED.finditer(piece)))}
    return ", ".join(
        f"{noun} {shown(_unquoted(named[field]))}"
        for field, noun in _NOUNS.items()
        if field in named
    )


def _unquoted(text: str) -> str:
    """Decode the text between the quotes of a JSON string. Return it unchanged if that fails."""
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
        # Keys of an entry can have a list as value, too. Only resource names contain a slash.
        if "/" in name:
            yield name, ids
