"""What a store does to the file system, and how much of it reaches the disk.

Every operation of :class:`checkpoint.FileStore` that changes a directory is one method here.
A subclass can therefore record them, replay any prefix of them as after a power failure, or
make one of them fail.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Final, TypeAlias

__all__ = ["Contents", "Durability", "FileOperations"]

Contents: TypeAlias = bytes | Sequence[bytes]
"""A file's contents, or the pieces that make them one after another."""

_MOST_PIECES: Final = os.sysconf("SC_IOV_MAX")


class Durability(enum.StrEnum):
    """What a write that has returned survives. Every level replaces the file by a rename, so
    that no reader ever sees half of it."""

    PROCESS = "process"
    """The end of the process, by SIGKILL too: nothing is flushed. A power failure may leave
    an older file, an empty one or a damaged one."""
    KUBELET = "kubelet"
    """As the kubelet's own store (pkg/kubelet/util/store/filestore.go, v1.32): the data is
    flushed before the rename. A power failure leaves the new file or the one before, whole."""
    POWER = "power"
    """A power failure: the directory is flushed, too, so that the new name is on the disk."""


class FileOperations:
    """The operating system's own operations. Each raises OSError."""

    def create(self, path: str) -> int:
        """Create a new file, readable by its owner alone as the kubelet's, and return a
        descriptor to write to. Raises FileExistsError if the name is taken."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: Contents) -> None:
        """Append all of ``data``."""
        if isinstance(data, bytes):
            return _write_whole(descriptor, data)
        for start in range(0, len(data), _MOST_PIECES):
            pieces = data[start : start + _MOST_PIECES]
            written = os.writev(descriptor, pieces)
            if written < sum(map(len, pieces)):
                _write_whole(descriptor, b"".join(pieces)[written:])

    def flush(self, descriptor: int) -> None:
        """Return once what was written is on the disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that had it is gone."""
        os.rename(old, new)  # noqa: PTH104  # text: a Path takes its time

    def remove(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108  # as above

    def flush_directory(self, path: str) -> None:
        """Return once the names in a directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
