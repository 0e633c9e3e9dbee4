"""What can be read of a file that a kubelet would reject, and what is wrong with it.

``loads`` gives all or nothing, which is right for a kubelet: half of a checkpoint would free
devices that containers hold. Somebody who looks into the file wants the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import attrs

from checkpoint.consistency import Finding, FindingKind, inconsistencies
from checkpoint.decode import Problem, Value, decode, decode_text, readable_part
from checkpoint.errors import ChecksumMismatch
from checkpoint.model import Checkpoint, PodDevicesEntry
from checkpoint.parse import read_entry, read_file, read_resource
from checkpoint.salvage import Salvage, salvage
from checkpoint.text import checksum

__all__ = ["Inspection", "inspect"]

K = TypeVar("K")
V = TypeVar("V")


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
        None if entries is None else tuple(_each(enumerate(entries), _entry, unread)),
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
    entries = tuple(_each(enumerate(everywhere.entries), _entry, unread))
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


def _entry(index: int, value: Value) -> PodDevicesEntry:
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
