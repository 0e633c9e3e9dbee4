"""Reading a checkpoint file, without trust in what stands under its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from checkpoint.errors import CheckpointNotFound, CheckpointUnreadable
from checkpoint.model import Checkpoint
from checkpoint.text import checksum

__all__ = ["MAX_SIZE", "load", "read", "verify"]

MAX_SIZE: Final = 256 << 20
"""The largest file, in bytes, that is read or written. With answers of some kilobytes from
plugins it is enough for tens of thousands of containers."""


def read(path: str | os.PathLike[str]) -> bytes:
    """The contents of a checkpoint file, unchecked.

    Raises CheckpointNotFound if nothing has that name, and CheckpointUnreadable: no
    permission, a directory, a link to nothing, an I/O error, a pipe or the like (which
    would block), more than :data:`MAX_SIZE` bytes.
    """
    source = os.fspath(path)
    try:
        # Not to wait for the other end, should it be a pipe.
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check_kind(source, os.fstat(descriptor))
            return _read_all(source, descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        _check_no_link(source)
        raise CheckpointNotFound(source) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CheckpointUnreadable(source, reason or str(error)) from error


def load(path: str | os.PathLike[str], *, v1: bool = False) -> Checkpoint:
    """Read and check a checkpoint file, of this project or of a kubelet (v1.20 or later, with
    ``v1`` any).

    Raises CheckpointNotFound, CheckpointUnreadable, CheckpointCorrupt or ChecksumMismatch.
    """
    data = read(path)
    from checkpoint.parse import loads

    return loads(data, source=os.fspath(path), v1=v1)


def verify(path: str | os.PathLike[str]) -> int:
    """Check a checkpoint file and return its checksum. Raises as :func:`load` does."""
    return checksum(load(path))


def _check_kind(source: str, status: os.stat_result) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        kind = "directory" if stat.S_ISDIR(mode) else "device, pipe or socket"
        raise CheckpointUnreadable(source, f"it is a {kind}, not a file")
    # Before anything is read: a sparse file of gigabytes takes no room on the disk.
    if status.st_size > MAX_SIZE:
        raise CheckpointUnreadable(source, _too_large(status.st_size))


def _check_no_link(source: str) -> None:
    """Tell a link to nothing from nothing: to start afresh would forget what it stood for."""
    try:
        target = Path(source).readlink()
    except OSError:
        return
    raise CheckpointUnreadable(source, f"it is a link to {target}, and nothing is there")


def _read_all(source: str, descriptor: int) -> bytes:
    parts, size = [], 0
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_SIZE:
            raise CheckpointUnreadable(source, _too_large(size))
    return b"".join(parts)


def _too_large(size: int) -> str:
    return f"it has {size} bytes, more than the {MAX_SIZE} that are read"
