"""The checkpoint file in its directory: read, replace as a whole and for good, set aside.

A write goes to a temporary file beside the checkpoint, is flushed to the disk, takes the
checkpoint's name, and the directory is flushed too: at every moment, also after a power
failure, there is one whole file, the old one or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from checkpoint.errors import (
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteError,
)
from checkpoint.model import Checkpoint
from checkpoint.parse import loads
from checkpoint.text import checksum

__all__ = [
    "CHECKPOINT_NAME",
    "Contents",
    "FileStore",
    "is_checkpoint_file",
    "load",
    "read",
    "verify",
]

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"
"""``kubeletDeviceManagerCheckpoint``, pkg/kubelet/cm/devicemanager/types.go, v1.32."""

Contents: TypeAlias = bytes | Sequence[bytes]
"""A file's contents, or the pieces that make them one after another."""

_MOST_PIECES: Final = os.sysconf("SC_IOV_MAX")
_ASIDE: Final = re.compile(re.escape(CHECKPOINT_NAME) + r"\.corrupt-[1-9][0-9]*")


def is_checkpoint_file(name: str) -> bool:
    """Whether a kubelet that clears its directory at start must leave this file name alone:
    the checkpoint, and what was set aside by :meth:`FileStore.set_aside`.

    The reference keeps only the checkpoint: it removes a file that was set aside if it is
    started in the same directory. Temporary files are not among those to keep.
    """
    return name == CHECKPOINT_NAME or _ASIDE.fullmatch(name) is not None


def read(path: str | os.PathLike[str]) -> bytes:
    """The contents of a checkpoint file, unchecked.

    Raises CheckpointNotFound, or CheckpointUnreadable: no permission, a directory, an
    I/O error, a pipe or the like (which would block).
    """
    source = os.fspath(path)
    try:
        # Not to wait for the other end, should it be a pipe.
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = "directory" if stat.S_ISDIR(mode) else "device, pipe or socket"
                raise CheckpointUnreadable(source, f"it is a {kind}, not a file")
            return _read_all(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise CheckpointNotFound(source) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CheckpointUnreadable(source, reason or str(error)) from error


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and check a checkpoint file, of this project or of a kubelet (v1.20 or later).

    Raises CheckpointNotFound, CheckpointUnreadable, CheckpointCorrupt or ChecksumMismatch.
    """
    return loads(read(path), source=os.fspath(path))


def verify(path: str | os.PathLike[str]) -> int:
    """Check a checkpoint file and return its checksum. Raises as :func:`load` does."""
    return checksum(load(path))


class FileStore:
    """The checkpoint file of one directory, which one process at a time may write.

    Every method may be called from any thread.
    """

    def __init__(self, directory: str | os.PathLike[str], name: str = CHECKPOINT_NAME) -> None:
        """``directory`` must exist when something is written; nothing is touched before."""
        self.directory = Path(directory)
        self.path = self.directory / name
        self._temporary = f".{name}.tmp-"
        self._numbers = itertools.count()
        # As text: every admission waits for a write, and a Path takes its time.
        self._place = os.fspath(self.path)
        self._temporary_place = os.fspath(self.directory / self._temporary)

    def read(self) -> bytes:
        """The file's contents, unchecked. Raises as :func:`read` does."""
        return read(self.path)

    def load(self) -> Checkpoint:
        """The checkpoint. Raises as :func:`load` does."""
        return load(self.path)

    def write(self, data: Contents) -> None:
        """Replace the file's contents, whole or in pieces, atomically and durably.

        Raises CheckpointWriteError; no temporary file is left then, and unless the error
        says ``replaced`` the file is what it was.
        """
        replaced = False
        try:
            temporary = self._write_temporary(data)
            try:
                os.rename(temporary, self._place)  # noqa: PTH104  # text, not a Path
            except BaseException:
                _discard(temporary)
                raise
            replaced = True
            self._flush_directory()
        except OSError as error:
            self._failed(error, replaced)

    def set_aside(self) -> Path:
        """Move the file (or what stands in its place) to ``<name>.corrupt-N``, N being the
        first number that is free, and return the new path. Nothing is ever overwritten.

        Raises CheckpointNotFound, or CheckpointWriteError if it cannot be moved.
        """
        try:
            is_directory = stat.S_ISDIR(os.lstat(self.path).st_mode)
            aside = self._reserve_aside(is_directory)
            try:
                # Goes over the empty file or directory that holds the name for us.
                self.path.rename(aside)
            except BaseException:
                with contextlib.suppress(OSError):
                    aside.rmdir() if is_directory else aside.unlink()
                raise
            self._flush_directory()
        except FileNotFoundError as error:
            raise CheckpointNotFound(str(self.path)) from error
        except OSError as error:
            self._failed(error, replaced=False)
        return aside

    def clean_up(self) -> list[Path]:
        """Remove what writers that were killed left behind, and return it, sorted.

        For start-up, when no other process writes here. Touches nothing but our own
        temporary files; what cannot be removed stays, since it does no harm.
        """
        removed = []
        with contextlib.suppress(OSError):
            for path in sorted(self.directory.iterdir()):
                if path.name.startswith(self._temporary):
                    with contextlib.suppress(OSError):
                        path.unlink()
                        removed.append(path)
        return removed

    def _write_temporary(self, data: Contents) -> str:
        descriptor, path = self._open_temporary()
        try:
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            _discard(path)
            raise
        return path

    def _open_temporary(self) -> tuple[int, str]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            # The number tells this process's writers apart, the pid those of one that was
            # killed; should a pid come again, the next number is free.
            path = f"{self._temporary_place}{os.getpid()}-{next(self._numbers)}"
            try:
                # Readable by the owner alone, as the kubelet's own file.
                return os.open(path, flags, 0o600), path
            except FileExistsError:
                continue

    def _reserve_aside(self, is_directory: bool) -> Path:
        for number in itertools.count(1):
            aside = self.path.with_name(f"{self.path.name}.corrupt-{number}")
            with contextlib.suppress(FileExistsError):
                if is_directory:
                    aside.mkdir()
                else:
                    aside.touch(exist_ok=False)
                return aside
        raise AssertionError("numbers never end")

    def _flush_directory(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _failed(self, error: OSError, replaced: bool) -> NoReturn:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        raise CheckpointWriteError(str(self.path), reason, replaced) from error


_REASONS: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EFBIG: "the file would exceed the size limit of this process or file system",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission to write in its directory",
    errno.EPERM: "no permission to write in its directory",
    errno.ENOENT: "its directory does not exist",
    errno.ENOTDIR: "what should be its directory is a file",
    errno.EISDIR: "a directory stands in its place: move that away",
    errno.EIO: "the disk reports an error",
}


def _write_all(descriptor: int, data: Contents) -> None:
    if isinstance(data, bytes):
        return _write_whole(descriptor, data)
    for start in range(0, len(data), _MOST_PIECES):
        pieces = data[start : start + _MOST_PIECES]
        written = os.writev(descriptor, pieces)
        if written < sum(map(len, pieces)):
            _write_whole(descriptor, b"".join(pieces)[written:])


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _discard(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108  # text, not a Path
