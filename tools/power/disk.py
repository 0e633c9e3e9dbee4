"""Model of a disk with one directory, and of all its states after a power failure.

A power failure can leave unflushed data of a file complete, partial or missing. Changes of names
reach the disk in order, as in every journaling file system. Of the changes since the last flush of
the directory, the newest may be missing. In practice, flushing a file often flushes its name, too,
but no file system guarantees this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from tools.harness.model import Devices

Files: TypeAlias = dict[str, bytes]
"""Contents of the files in the directory, by file name."""


@attrs.frozen
class Create:
    """Operation: create an empty file. ``file`` is its unique number."""

    name: str
    file: int


@attrs.frozen
class Write:
    """Operation: append data to a file."""

    file: int
    data: bytes


@attrs.frozen
class Truncate:
    """Operation: remove all data of a file."""

    file: int


@attrs.frozen
class Flush:
    """Operation: flush the data of a file to disk."""

    file: int


@attrs.frozen
class Rename:
    """Operation: rename a file. A file that has the new name is replaced."""

    old: str
    new: str


@attrs.frozen
class Remove:
    """Operation: remove a name from the directory."""

    name: str


@attrs.frozen
class FlushDirectory:
    """Operation: flush all names in the directory to disk."""


@attrs.frozen
class Mark:
    """Entry between operations: at this moment, the kubelet has confirmed an allocation or
    termination."""

    what: str
    uid: str
    devices: Devices = frozenset()


Named: TypeAlias = Create | Rename | Remove
Operation: TypeAlias = Named | Write | Truncate | Flush | FlushDirectory | Mark


@attrs.define
class Disk:
    """State on disk, and state in memory that a power failure can lose."""

    _names: dict[str, int] = attrs.field(factory=dict)
    """Names on disk, each with the number of its file."""
    _pending: list[Named] = attrs.field(factory=list)
    """Changes of names that are not flushed, oldest first."""
    _flushed: dict[int, bytes] = attrs.field(factory=dict)
    _written: dict[int, bytes] = attrs.field(factory=dict)
    """``_flushed`` has the contents on disk, and ``_written`` those in memory, by number of the
    file."""

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Disk:
        """Create a disk with flushed files. The numbers of these files are negative."""
        numbers = {name: -number for number, name in enumerate(sorted(files), 1)}
        contents = {number: files[name] for name, number in numbers.items()}
        return cls(numbers, [], contents, dict(contents))

    def do(self, operation: Operation) -> None:
        """Apply one operation."""
        match operation:
            # A power failure loses names and data independently: a name can be on disk without its
            # data.
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
        """Return the files as a running process reads them."""
        return {name: self._written[file] for name, file in self._after(self._pending).items()}

    def lost(self) -> Iterator[Files]:
        """Iterate over the states that a power failure can leave. States may be repeated."""
        for count in range(len(self._pending) + 1):
            names = self._after(self._pending[:count])
            # One half stands for all partial writes: each of them is damage that must be noticed.
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
    """Iterate over the states of the disk: before the first operation, and after each operation.
    The same object is yielded each time, in its current state."""
    disk = Disk.of(start)
    yield disk
    for operation in operations:
        disk.do(operation)
        yield disk
