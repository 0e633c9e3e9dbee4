"""Write a checkpoint where the user wants it.

Only ``--write`` replaces a file, after a copy, and never while a kubelet uses it: the kubelet would
overwrite the file with its own state. Loaded only to write.
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
"""The directory that kubelets clear at startup."""


@attrs.frozen
class Written:
    """The path of the written file and of the copy of the previous one."""

    path: str
    copy: str | None = None


def write(file: CheckpointFile, data: bytes, args: argparse.Namespace) -> Written | None:
    """Write the file for ``--write`` or ``--to``; without both, return None.

    Raises CommandError, OSError and CheckpointWriteError; after an error the file is unchanged.
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
        raise CommandError(f"cannot replace {file.name} (not a regular file): use --to PATH")
    # A rename replaces a symbolic link instead of the file behind it.
    path = file.path.resolve()
    if copies is not None and not Path(copies).is_dir():
        raise CommandError(f"--copies: {copies} is not a directory")
    # Before the file is read again: a running kubelet writes it at any time.
    _check_no_kubelet(path.parent)
    if checkpoint.read(path) != file.data:
        raise CommandError(f"{file.name} has changed meanwhile: stop its kubelet and try again")
    # The copy is on the disk before the file is replaced.
    copy = _copy(Path(copies) if copies is not None else _copies(path.parent), path, file.data)
    # Through a temporary file and a rename, as the kubelet does: never half a file.
    store = checkpoint.FileStore(path.parent, path.name, files=_Like(path.stat()))
    store.write(data)
    return Written(file.name, str(copy))


def _check_no_kubelet(directory: Path) -> None:
    """Raise CommandError if a kubelet serves the socket beside the file."""
    socket = directory / KUBELET_SOCKET
    with contextlib.suppress(OSError):  # no process can listen on a path that is too long
        if socket.exists() and sockets.is_alive(socket):
            raise CommandError(
                f"a kubelet serves {socket} and would overwrite the file: stop it first, or use "
                "--to PATH"
            )


def _copies(directory: Path) -> Path:
    return directory.parent if directory.name == _CLEANED else directory


def _copy(directory: Path, path: Path, data: bytes) -> Path:
    """Write a copy under the first free name."""
    for number in itertools.count(1):
        copy = directory / f"{path.name}.before-{number}"
        # Earlier copies stay: one of them can be the last intact file.
        with contextlib.suppress(FileExistsError):
            _create(copy, data)
            return copy
    raise AssertionError("numbers never end")


def _create(path: Path, data: bytes) -> None:
    """Create a file; it is on the disk when this returns."""
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
    """File creation with the mode and, if permitted, the owner of another file."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        # Owner first: fchown can clear bits of the mode. Only root may change the owner.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, self._status.st_uid, self._status.st_gid)
        os.fchmod(descriptor, self._status.st_mode & 0o7777)
        return descriptor
