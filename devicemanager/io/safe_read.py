"""Read a small regular file of unknown origin safely. Reject pipes, devices and large files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["FileRejected", "NotRegular", "TooLarge", "not_utf8", "read_regular"]

_PIECE = 1 << 16

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class FileRejected(Exception):
    """Error for a file that must not be read; the text describes the file, such as "a pipe, not a
    regular file"."""


class NotRegular(FileRejected):
    """Error for a path that is not a regular file: a directory, device, pipe or socket."""


class TooLarge(FileRejected):
    """Error for a file that has more bytes than allowed."""


def read_regular(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the contents of a regular file of at most ``limit`` bytes.

    Symbolic links are followed. The call never blocks, even on a pipe without a writer. Raises
    NotRegular, TooLarge or OSError.
    """
    # The first check is before the open, because opening a device can have effects.
    _check(Path(path).stat(), limit)
    # With O_NONBLOCK, opening a FIFO without a writer does not block. With O_NOCTTY, a terminal
    # does not become the controlling terminal.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        # The second check is needed because the path can be replaced between stat and open.
        _check(os.fstat(descriptor), limit)
        return _read(descriptor, limit)
    finally:
        os.close(descriptor)


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return an error text with the position of the first invalid byte, counted from 0."""
    return f"not UTF-8 text (byte {error.start})"


def _check(status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise NotRegular(f"{kind}, not a regular file")
    if status.st_size > limit:
        raise TooLarge(f"{status.st_size} bytes, more than the limit of {limit} bytes")


def _read(descriptor: int, limit: int) -> bytes:
    """Return all bytes of an open file; raise TooLarge if there are more than ``limit``."""
    # The bytes are counted, because files in /proc have size 0 and other files can grow.
    pieces, size = [], 0
    while piece := os.read(descriptor, _PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLarge(f"more than the limit of {limit} bytes")
    return b"".join(pieces)
