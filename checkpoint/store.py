"""Checkpoint file in its directory: replace it as a whole, or move it aside."""

# A write creates a temporary file in the same directory and renames it to the checkpoint's name.
# Therefore readers always find one complete file:
#
# * If the write succeeds, they find the new file.
# * If the write fails before the rename, they find the old file. The temporary file is removed.
# * If the process is killed, they find the old file. The next start removes the temporary file.
#
# ``Durability`` selects which file is found after a power failure.

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from pathlib import Path
from typing import Final, NoReturn

from checkpoint.errors import CheckpointNotFound, CheckpointWriteError
from checkpoint.files import Contents, Durability, FileOperations
from checkpoint.freeing import Freeing
from checkpoint.model import Checkpoint
from checkpoint.reading import MAX_SIZE, load, read

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"
"""Name of the kubelet's file: ``kubeletDeviceManagerCheckpoint``,
pkg/kubelet/cm/devicemanager/types.go, v1.32."""

_ASIDE: Final = re.escape(CHECKPOINT_NAME) + r"\.corrupt-[1-9][0-9]*"


def is_checkpoint_file(name: str) -> bool:
    """True if the mock kubelet keeps the file ``name`` when it clears its directory at start.

    It keeps the checkpoint, and damaged checkpoints that :meth:`FileStore.set_aside` has renamed.
    It removes temporary files. A real kubelet keeps only the checkpoint.
    """
    return name == CHECKPOINT_NAME or re.fullmatch(_ASIDE, name) is not None


class FileStore:
    """Storage of the checkpoint file in one directory. Thread-safe.

    Only one process at a time may write the file.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str = CHECKPOINT_NAME,
        *,
        durability: Durability | str = Durability.KUBELET,
        files: FileOperations | None = None,
        freeing: Freeing | None = None,
    ) -> None:
        """``directory`` must exist when the file is written. ``files`` performs the file system
        operations. ``freeing`` frees replaced files in the background; the caller must close
        ``freeing``. Raises ValueError for an unknown durability."""
        self.directory = Path(directory)
        self.path = self.directory / name
        self._durability = Durability(durability)
        self._files = files or FileOperations()
        self._freeing = freeing
        self._numbers = itertools.count()
        # Stored as strings: every admission waits for a write, and creating a Path is slow.
        self._directory = os.fspath(self.directory)
        self._place = os.fspath(self.path)
        self._temporary = os.fspath(self.directory / f".{name}.tmp-")

    def read(self) -> bytes:
        """Return the contents of the file without validation, like :func:`checkpoint.read`."""
        return read(self.path)

    def load(self, *, v1: bool = False) -> Checkpoint:
        """Return the validated contents of the file, like :func:`checkpoint.load`."""
        return load(self.path, v1=v1)

    def write(self, data: Contents) -> None:
        """Replace the contents of the file atomically, with the store's durability.

        Raises CheckpointWriteError if the write fails; no temporary file remains. If ``replaced``
        of the error is false, the file is unchanged. More than ``MAX_SIZE`` bytes are
        rejected, because :func:`checkpoint.read` would reject the file.
        """
        self._check_size(data)
        replaced = False
        try:
            if self._freeing is not None:
                self._freeing.settle()
            temporary = self._write_temporary(data)
            self._replace_by(temporary)
            replaced = True
            if self._durability is Durability.POWER:
                self._files.flush_directory(self._directory)
        except OSError as error:
            self._failed(error, replaced)

    def set_aside(self) -> Path:
        """Move the file to ``<name>.corrupt-N`` with the first free number N, and return the new
        path. No existing file is overwritten.

        Raises CheckpointNotFound if the file does not exist, and CheckpointWriteError if it cannot
        be moved.
        """
        if not os.path.lexists(self._place):
            raise CheckpointNotFound(self._place)
        try:
            aside = self._reserve_aside()
            # The rename replaces the empty file that reserves the name.
            self._rename(self._place, aside, or_remove=aside)
            if self._durability is Durability.POWER:
                self._files.flush_directory(self._directory)
        except OSError as error:
            self._failed(error, replaced=False)
        return Path(aside)

    def remove_leftovers(self) -> None:
        """Remove temporary files that were left when a process was killed during a write.

        Call this before the first write, while no other process writes to the directory. Temporary
        files that cannot be removed are harmless and remain.
        """
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.path.startswith(self._temporary):
                    self._discard(entry.path)

    def _check_size(self, data: Contents) -> None:
        size = len(data) if isinstance(data, bytes) else sum(map(len, data))
        if size > MAX_SIZE:
            reason = f"it would have {size} bytes; the limit is {MAX_SIZE}"
            raise CheckpointWriteError(self._place, reason)

    def _write_temporary(self, data: Contents) -> str:
        descriptor, path = self._create_temporary()
        try:
            try:
                self._files.write(descriptor, data)
                if self._durability is not Durability.PROCESS:
                    self._files.flush(descriptor)
            finally:
                self._files.close(descriptor)
        except BaseException:
            self._discard(path)
            raise
        return path

    def _create_temporary(self) -> tuple[int, str]:
        while True:
            # The number is unique in this process, and the process ID distinguishes the file from
            # those of killed processes. If a process ID was reused, the name may exist: try the
            # next number.
            path = f"{self._temporary}{os.getpid()}-{next(self._numbers)}"
            try:
                return self._files.create(path), path
            except FileExistsError:
                continue

    def _replace_by(self, temporary: str) -> None:
        old = None if self._freeing is None else self._freeing.hold(self._place)
        try:
            self._rename(temporary, self._place, or_remove=temporary)
        finally:
            if self._freeing is not None and old is not None:
                self._freeing.free(old)

    def _reserve_aside(self) -> str:
        for number in itertools.count(1):
            aside = f"{self._place}.corrupt-{number}"
            with contextlib.suppress(FileExistsError):
                self._files.close(self._files.create(aside))
                return aside
        raise AssertionError("unreachable: itertools.count never ends")

    def _rename(self, old: str, new: str, or_remove: str) -> None:
        try:
            self._files.rename(old, new)
        except BaseException:
            self._discard(or_remove)
            raise

    def _discard(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self._files.remove(path)

    def _failed(self, error: OSError, replaced: bool) -> NoReturn:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        raise CheckpointWriteError(self._place, reason, replaced) from error


_REASONS: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EFBIG: "the file would exceed the size limit of this process or file system",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission to write in its directory: check its owner and mode",
    errno.EPERM: "no permission to write in its directory: check its owner and mode",
    errno.ENOENT: "its directory does not exist",
    errno.ENOTDIR: "its directory is a file",
    errno.EISDIR: "it is a directory: move it away",
    errno.EIO: "the disk reports an error",
}
