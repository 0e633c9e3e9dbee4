"""Read a checkpoint file safely, even if its path leads to another kind of file.

The path can lead to a directory, a FIFO or a sparse file of gigabytes. Reading must neither
block nor fill the memory. A dangling link is reported as unreadable, and a missing file as not
found.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from checkpoint.errors import CheckpointNotFound, CheckpointUnreadable
from checkpoint.model import Checkpoint
from checkpoint.text import checksum

MAX_SIZE: Final = 256 << 20
"""Largest size of a checkpoint file that is read or written, in bytes. It is enough for tens of
thousands of containers with plugin responses of a few kilobytes."""


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a checkpoint file without validation.

    Raises CheckpointNotFound if the file does not exist. Raises CheckpointUnreadable for a dangling
    link, for anything else that is not a regular file, and for a file larger than :data:`MAX_SIZE`.
    Also raises CheckpointUnreadable for missing permissions and I/O errors.
    """
    source = os.fspath(path)
    try:
        # O_NONBLOCK: otherwise opening a FIFO would wait for a writer.
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
    """Read and validate a checkpoint file of devicemanager or of a kubelet since v1.20. If ``v1``
    is true, also accept a file of an older kubelet.

    Raises CheckpointNotFound, CheckpointUnreadable, CheckpointCorrupt or ChecksumMismatch.
    """
    data = read(path)
    # Imported here: most nodes start without a checkpoint, and the parser is slow to import.
    from checkpoint.parse import loads

    return loads(data, source=os.fspath(path), v1=v1)


def verify(path: str | os.PathLike[str]) -> int:
    """Validate a checkpoint file and return its checksum. Raises the same errors as
    :func:`load`."""
    return checksum(load(path))


def _check_kind(source: str, status: os.stat_result) -> None:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        kind = "directory" if stat.S_ISDIR(mode) else "device, pipe or socket"
        raise CheckpointUnreadable(source, f"it is a {kind}, not a regular file")
    # Checked before reading: a sparse file can have gigabytes without using disk space.
    if status.st_size > MAX_SIZE:
        raise CheckpointUnreadable(source, _too_large(status.st_size))


def _check_no_link(source: str) -> None:
    """Raise CheckpointUnreadable if the path is a link whose target does not exist."""
    # If a dangling link counted as a missing file, the kubelet would start without a checkpoint and
    # free the devices that the link's target lists.
    try:
        target = Path(source).readlink()
    except OSError:
        return
    raise CheckpointUnreadable(source, f"it is a link to {target}, which does not exist")


def _read_all(source: str, descriptor: int) -> bytes:
    parts, size = [], 0
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_SIZE:
            raise CheckpointUnreadable(source, _too_large(size))
    return b"".join(parts)


def _too_large(size: int) -> str:
    return f"it has {size} bytes; the limit is {MAX_SIZE}"
