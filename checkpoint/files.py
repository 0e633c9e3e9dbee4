"""File system operations of a store, and the durability of its writes.

:class:`checkpoint.FileStore` changes its directory only through :class:`FileOperations`. Tests
subclass it to record the operations, or to let one operation fail. To simulate a
power failure, they also replay the first N recorded operations and omit the rest.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Final, TypeAlias

Contents: TypeAlias = bytes | Sequence[bytes]
"""Contents of a file: one byte string, or consecutive pieces."""

_MOST_PIECES: Final = os.sysconf("SC_IOV_MAX")


class Durability(enum.StrEnum):
    """Choice of the events that a completed write survives: a killed process, or a power failure.

    Every write replaces the file with a rename, so readers see either the old or the new contents.
    """

    PROCESS = "process"
    """The write survives a killed process. Nothing is flushed to disk: a power failure can leave an
    older, empty or damaged file."""
    KUBELET = "kubelet"
    """Durability of the kubelet (pkg/kubelet/util/store/filestore.go, v1.32): data is flushed
    before the rename. After a power failure, the file is the old or the new one, undamaged."""
    POWER = "power"
    """The write survives a power failure. The directory is flushed as well, so the new name is on
    disk."""


class FileOperations:
    """File system operations, performed by the operating system. Each method raises OSError on
    failure."""

    def create(self, path: str) -> int:
        """Create a file that only its owner can access, as the kubelet does. Return a descriptor
        for writing. Raises FileExistsError if the name exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: Contents) -> None:
        """Append ``data`` to the file of ``descriptor``."""
        if isinstance(data, bytes):
            return _write_whole(descriptor, data)
        for start in range(0, len(data), _MOST_PIECES):
            pieces = data[start : start + _MOST_PIECES]
            written = os.writev(descriptor, pieces)
            if written < sum(map(len, pieces)):
                _write_whole(descriptor, b"".join(pieces)[written:])

    def flush(self, descriptor: int) -> None:
        """Flush the data written to ``descriptor`` to disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file descriptor."""
        os.close(descriptor)

    # ``rename`` and ``remove`` take strings: every admission waits for a write, and creating a Path
    # is slow.

    def rename(self, old: str, new: str) -> None:
        """Rename a file. A file that has the new name is replaced."""
        os.rename(old, new)  # noqa: PTH104

    def remove(self, path: str) -> None:
        """Remove the file at ``path``."""
        os.unlink(path)  # noqa: PTH108

    def flush_directory(self, path: str) -> None:
        """Flush the file names of the directory at ``path`` to disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
