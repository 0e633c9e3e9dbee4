"""Write a checkpoint to the file that the user selects with ``--write`` or ``--to``.

Only ``--write`` replaces a file, after making a copy. ``--write`` fails while a kubelet uses the
file, because the kubelet would overwrite the new checkpoint with its own state. This module is
imported only by commands that write.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
from pathlib import Path

import attrs

import checkpoint
from devicemanager.cli.checkpoint_files import CheckpointFile
from devicemanager.cli.files import STANDARD_INPUT, exists
from devicemanager.cli.options import CommandError
from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from podresources import sockets

_CLEANED = "device-plugins"
"""The directory in which a kubelet removes unknown files at startup."""


@attrs.frozen
class Written:
    """Paths of a write: the written checkpoint, and the copy of the file that it replaced.

    ``copy`` is None if no file was replaced.
    """

    path: str
    copy: str | None = None


def write(file: CheckpointFile, data: bytes, args: argparse.Namespace) -> Written | None:
    """Write ``data`` as ``--write`` or ``--to`` requests, and return the paths. Without these
    flags, return None.

    Raises CommandError, OSError and CheckpointWriteError. After an error, the file that
    ``--write`` replaces is unchanged.
    """
    if args.to == STANDARD_INPUT:
        _print(data)
        return Written(args.to)
    if args.to is not None:
        try:
            _create(Path(args.to), data)
        except FileExistsError:
            raise CommandError(exists(args.to)) from None
        return Written(args.to)
    return _replace(file, data, args.copies) if args.write else None


def _print(data: bytes) -> None:
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(data.decode())
    else:
        stream.write(data)


def _replace(file: CheckpointFile, data: bytes, copies: str | None) -> Written:
    if file.path is None:
        raise CommandError(
            f"--write cannot replace {file.name} (standard input or a snapshot): use --to PATH"
        )
    # Resolved, because a rename would replace a symbolic link instead of its target.
    path = file.path.resolve()
    if copies is not None and not Path(copies).is_dir():
        raise CommandError(f"--copies: {copies} is not a directory: create it first")
    # Checked before the file is read again, because a running kubelet can write it at any time.
    _check_no_kubelet(path.parent)
    if checkpoint.read(path) != file.data:
        raise CommandError(
            f"{file.name} changed while it was processed: stop its kubelet and try again"
        )
    # Copied to disk before the file is replaced.
    copy = _copy(Path(copies) if copies is not None else _copies(path.parent), path, file.data)
    # Replaced by renaming a temporary file, as the kubelet does, so that it is never incomplete.
    store = checkpoint.FileStore(path.parent, path.name, files=_Like(path.stat()))
    store.write(data)
    return Written(file.name, str(copy))


def _check_no_kubelet(directory: Path) -> None:
    """Raise CommandError if a kubelet serves ``kubelet.sock`` in the directory, or below it."""
    # Two places, because dra_manager_state is in the directory above that of the socket.
    for socket in (directory / KUBELET_SOCKET, directory / _CLEANED / KUBELET_SOCKET):
        with contextlib.suppress(OSError):  # no process can listen on a path that is too long
            if socket.exists() and sockets.is_alive(socket):
                raise CommandError(
                    f"a kubelet serves {socket} and would overwrite the file: stop it first, or "
                    "use --to PATH"
                )


def _copies(directory: Path) -> Path:
    return directory.parent if directory.name == _CLEANED else directory


def _copy(directory: Path, path: Path, data: bytes) -> Path:
    """Write a copy of a file under the first free name, and return its path."""
    for number in itertools.count(1):
        copy = directory / f"{path.name}.before-{number}"
        # Earlier copies are not overwritten: one of them can be the last intact file.
        with contextlib.suppress(FileExistsError):
            _create(copy, data)
            return copy
    raise AssertionError("unreachable: itertools.count never ends")


def _create(path: Path, data: bytes) -> None:
    """Create a file, and return when its content is on the disk."""
    files = checkpoint.FileOperations()
    descriptor = files.create(str(path))
    try:
        files.write(descriptor, data)
        files.flush(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        files.close(descriptor)


class _Like(checkpoint.FileOperations):
    """File operations that create files with the mode and, if permitted, the owner of another
    file."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        # The owner is set first, because fchown can clear mode bits. Only root may set the owner.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, self._status.st_uid, self._status.st_gid)
        os.fchmod(descriptor, self._status.st_mode & 0o7777)
        return descriptor
