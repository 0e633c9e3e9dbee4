"""Read a small file of unknown origin, safely for any kind of file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["FileRejected", "NotRegular", "TooLarge", "read_regular"]

_PIECE = 1 << 16

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class FileRejected(Exception):
    """A file that is not read. The text describes it: "a pipe, not a regular file"."""


class NotRegular(FileRejected):
    """A directory, a device, a pipe or a socket."""


class TooLarge(FileRejected):
    """More bytes than allowed."""


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the contents of a regular file of at most ``limit`` bytes.

    Symbolic links are followed. The call never blocks, for example on a pipe without a writer.
    Raises NotRegular, TooLarge or OSError.
    """
    # Checked before the open, too, since opening a device can have effects.
    _check(Path(path).stat(), limit)
    # O_NONBLOCK: a FIFO without a writer opens at once. O_NOCTTY: a terminal does not become ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        # Again, because the path can have been replaced between stat and open.
        _check(os.fstat(descriptor), limit)
        return _read(descriptor, limit)
    finally:
        os.close(descriptor)


def _check(status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise NotRegular(f"{kind}, not a regular file")
    if status.st_size > limit:
        raise TooLarge(f"{status.st_size} bytes, more than the {limit} allowed")


def _read(descriptor: int, limit: int) -> bytes:
    """Read and count the bytes: files in /proc have size 0, and others can grow meanwhile."""
    pieces, size = [], 0
    while piece := os.read(descriptor, _PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLarge(f"more than the {limit} bytes allowed")
    return b"".join(pieces)
