"""File system operations of a store, and the durability of its writes.

Each operation of :class:`checkpoint.FileStore` that changes a directory is one method here.
Subclasses can record the operations, replay any prefix as after a power failure, or let one of
them fail.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Final, TypeAlias

Contents: TypeAlias = bytes | Sequence[bytes]
"""Contents of a file, whole or in consecutive pieces."""

_MOST_PIECES: Final = os.sysconf("SC_IOV_MAX")


class Durability(enum.StrEnum):
    """What a completed write survives. Every level replaces the file by a rename, so that
    readers see either the old or the new contents."""

    PROCESS = "process"
    """A killed process. Nothing is flushed: a power failure can leave an older, empty or
    damaged file."""
    KUBELET = "kubelet"
    """The same as in the kubelet (pkg/kubelet/util/store/filestore.go, v1.32): data is flushed
    before the rename. A power failure leaves the old or the new file undamaged."""
    POWER = "power"
    """A power failure. The directory is flushed, too, so that the new name is on disk."""


class FileOperations:
    """The operations of the operating system. Each raises OSError."""

    def create(self, path: str) -> int:
        """Create a file that only its owner can read, like the kubelet's, and return a
        descriptor to write to. Raises FileExistsError if the name exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: Contents) -> None:
        """Append ``data``."""
        if isinstance(data, bytes):
            return _write_whole(descriptor, data)
        for start in range(0, len(data), _MOST_PIECES):
            pieces = data[start : start + _MOST_PIECES]
            written = os.writev(descriptor, pieces)
            if written < sum(map(len, pieces)):
                _write_whole(descriptor, b"".join(pieces)[written:])

    def flush(self, descriptor: int) -> None:
        """Flush the written data to disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    # The next two take strings: every admission waits for a write, and making a Path is slow.

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file of the new name."""
        os.rename(old, new)  # noqa: PTH104

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)  # noqa: PTH108

    def flush_directory(self, path: str) -> None:
        """Flush the names in a directory to disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
