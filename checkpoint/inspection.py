"""What can be read of a file that a kubelet would reject, and what is wrong with it.

``loads`` gives all or nothing, which is right for a kubelet: half of a checkpoint would free
devices that containers hold. Somebody who looks into the file wants the rest.
"""

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

__all__ = ["Inspection", "inspect"]

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
"""How many times the length of a text may be read in vain; what is behind is given up."""


@attrs.frozen
class Inspection:
    """A file's contents as far as they can be read."""

    checkpoint: Checkpoint
    is_complete: bool
    """Whether all of it could be read; its checksum may still be wrong."""
    problems: tuple[str, ...]
    """Why a kubelet would reject the file, a line each. Empty if it would not."""
    found: int | None
    """The file's checksum; None if the file ends before it or it is no number."""
    expected: int
    """The checksum of what can be read."""
    lost: tuple[str, ...] = ()
    """Each entry and resource that is not in ``checkpoint``: why, or whose it was as far as
    that can be read. Of a file that is cut off, what stood behind is not known."""
    is_text: bool = True
    """False if some bytes are no text: U+FFFD stands for them in what was read."""

    def inconsistencies(self) -> tuple[Finding, ...]:
        """What no kubelet would have written. Where the file ends early, the registered
        resources are what is missing, so that nothing is said of them."""
        return tuple(
            each
            for each in inconsistencies(self.checkpoint)
            if self.is_complete or each.kind is not FindingKind.UNREGISTERED_RESOURCE
        )


def inspect(data: bytes) -> Inspection:
    """Read as much of ``data`` as there is, also behind the place where it is damaged, and where
    nothing leads to it any more. Raises nothing."""
    found = _read(data)
    return _closer(data, found) if found.problems else found


def _read(data: bytes) -> Inspection:
    """As a kubelet reads, and on behind the damage."""
    problems: list[str] = []
    value, behind = _decoded(data, problems)
    found: int | None
    try:
        entries, registered, found = read_file(value)
    except Problem as problem:
        problems.append(str(problem))
        entries, registered, found = [], {}, None
    if problems:
        found = None  # it may be what is absent or damaged
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
    """A rejected file searched for entries from its beginning, if that finds more: what says
    where they are may be what is damaged, or one may have run into others."""
    everywhere = salvage(data.decode(errors="replace"), 0)
    unread: list[str] = []
    entries = tuple(_each(enumerate(everywhere.entries), _read_entry, unread))
    if len(entries) <= len(found.checkpoint.entries or ()):
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


def _decoded(data: bytes, problems: list[str]) -> tuple[Value, Salvage]:
    """The value of the whole text, or of the part before the damage (None if there is none),
    and what stands behind that."""
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
    """Those that can be read; what is wrong with the others is added to ``problems``."""
    for key, value in items:
        try:
            yield read(key, value)
        except Problem as problem:
            problems.append(str(problem))


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
