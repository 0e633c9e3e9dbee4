"""A disk with one directory on it, and everything that a power loss may leave of it.

Data of a file that was not flushed may be there, in part, or not at all. Changes of names
reach the disk in their order, as in every file system with a journal; those since the last
flush of the directory may be missing from some point on. That a flush of a file often
brings its name along is nothing to rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

Files: TypeAlias = dict[str, bytes]
"""What is in the directory, by name."""


@attrs.frozen
class Create:
    """A new and empty file gets a name; ``file`` is a number of its own."""

    name: str
    file: int


@attrs.frozen
class Write:
    """Data is appended."""

    file: int
    data: bytes


@attrs.frozen
class Truncate:
    """A file is emptied."""

    file: int


@attrs.frozen
class Flush:
    """What is in a file reaches the disk."""

    file: int


@attrs.frozen
class Rename:
    """A file gets another name; a file that had it is gone."""

    old: str
    new: str


@attrs.frozen
class Remove:
    """A name is gone."""

    name: str


@attrs.frozen
class FlushDirectory:
    """All names reach the disk."""


@attrs.frozen
class Mark:
    """No operation: something happened at this moment that the check must know of."""

    what: str
    uid: str
    devices: tuple[str, ...] = ()


Named: TypeAlias = Create | Rename | Remove
Operation: TypeAlias = Named | Write | Truncate | Flush | FlushDirectory | Mark


@attrs.define
class Disk:
    """What is on the disk, and what only the memory of the machine has."""

    _names: dict[str, int] = attrs.field(factory=dict)
    """The names on the disk."""
    _pending: list[Named] = attrs.field(factory=list)
    """What changed names since, oldest first."""
    _flushed: dict[int, bytes] = attrs.field(factory=dict)
    _written: dict[int, bytes] = attrs.field(factory=dict)
    """Contents on the disk, and as a reader sees them; by file."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Disk:
        """A disk that holds these for good. Their numbers are negative."""
        numbers = {name: -number for number, name in enumerate(sorted(files), 1)}
        contents = {number: files[name] for name, number in numbers.items()}
        return cls(numbers, [], contents, dict(contents))

    def do(self, operation: Operation) -> None:
        """One more operation happened."""
        match operation:
            case Create(_, file):
                self._flushed[file] = self._written[file] = b""
                self._pending.append(operation)
            case Rename() | Remove():
                self._pending.append(operation)
            case Write(file, data):
                self._written[file] += data
            case Truncate(file):
                self._written[file] = b""
            case Flush(file):
                self._flushed[file] = self._written[file]
            case FlushDirectory():
                self._names, self._pending = self._after(self._pending), []

    def seen(self) -> Files:
        """What a process reads now; also what is left when no power is lost."""
        return {name: self._written[file] for name, file in self._after(self._pending).items()}

    def lost(self) -> Iterator[Files]:
        """Everything that may be left if the power is lost now. May come more than once."""
        for count in range(len(self._pending) + 1):
            names = self._after(self._pending[:count])
            for share in (0.0, 0.5, 1.0):
                yield {name: self._left(file, share) for name, file in names.items()}

    def _left(self, file: int, share: float) -> bytes:
        flushed, written = self._flushed[file], self._written[file]
        if flushed == written or not share:
            return flushed
        return written[: int(len(written) * share)]

    def _after(self, changes: Iterable[Named]) -> dict[str, int]:
        names = dict(self._names)
        for change in changes:
            match change:
                case Create(name, file):
                    names[name] = file
                case Rename(old, new):
                    names[new] = names.pop(old)
                case Remove(name):
                    names.pop(name, None)
        return names


def moments(start: Mapping[str, bytes], operations: Sequence[Operation]) -> Iterator[Disk]:
    """The disk before the first operation and after each; the same object every time."""
    disk = Disk.of(start)
    yield disk
    for operation in operations:
        disk.do(operation)
        yield disk
