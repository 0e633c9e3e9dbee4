"""A model of a disk with one directory, and all states that a power failure can leave.

Unflushed data of a file may be complete, partial or missing. Changes of names reach the disk in
order, as in every file system with a journal; those since the last flush of the directory may
be missing from some point on. In practice flushing a file often flushes its name, too, but no
file system guarantees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from tools.harness.model import Devices

Files: TypeAlias = dict[str, bytes]
"""Contents of the files in the directory, by name."""


@attrs.frozen
class Create:
    """Create an empty file; ``file`` is its unique number."""

    name: str
    file: int


@attrs.frozen
class Write:
    """Append data."""

    file: int
    data: bytes


@attrs.frozen
class Truncate:
    """Empty a file."""

    file: int


@attrs.frozen
class Flush:
    """Flush the contents of a file to disk."""

    file: int


@attrs.frozen
class Rename:
    """Rename a file, replacing any file of the new name."""

    old: str
    new: str


@attrs.frozen
class Remove:
    """Remove a name."""

    name: str


@attrs.frozen
class FlushDirectory:
    """Flush all names to disk."""


@attrs.frozen
class Mark:
    """No operation: the kubelet has confirmed something at this moment."""

    what: str
    uid: str
    devices: Devices = frozenset()


Named: TypeAlias = Create | Rename | Remove
Operation: TypeAlias = Named | Write | Truncate | Flush | FlushDirectory | Mark


@attrs.define
class Disk:
    """The state on disk, and the state in memory that a power failure can lose."""

    _names: dict[str, int] = attrs.field(factory=dict)
    """The names on disk."""
    _pending: list[Named] = attrs.field(factory=list)
    """Unflushed changes of names, oldest first."""
    _flushed: dict[int, bytes] = attrs.field(factory=dict)
    _written: dict[int, bytes] = attrs.field(factory=dict)
    """Contents on disk and in memory, by file."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Disk:
        """Create a disk with flushed files. Their numbers are negative."""
        numbers = {name: -number for number, name in enumerate(sorted(files), 1)}
        contents = {number: files[name] for name, number in numbers.items()}
        return cls(numbers, [], contents, dict(contents))

    def do(self, operation: Operation) -> None:
        """Apply an operation."""
        match operation:
            # Names and data are lost independently: a name can be on disk without its data.
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
        """Return what a process reads: the state without a power failure."""
        return {name: self._written[file] for name, file in self._after(self._pending).items()}

    def lost(self) -> Iterator[Files]:
        """Iterate over the states that a power failure can leave, with possible repetitions."""
        for count in range(len(self._pending) + 1):
            names = self._after(self._pending[:count])
            # A half stands for all partial writes: they are all damaged, and all must be noticed.
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
    """Iterate over the disk before the first and after each operation. It is one object."""
    disk = Disk.of(start)
    yield disk
    for operation in operations:
        disk.do(operation)
        yield disk
