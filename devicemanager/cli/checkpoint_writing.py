"""Putting a checkpoint where the user wants it: never over something, unless asked, and never
under a kubelet that runs."""

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
"""The directory that kubelets clear when they start."""


@attrs.frozen
class Written:
    """Where a file went, and where the copy of the one before is."""

    path: str
    copy: str | None = None


def write(file: CheckpointFile, data: bytes, args: argparse.Namespace) -> Written | None:
    """As ``--write`` or ``--to`` says; None if neither does. Raises CommandError, OSError and
    CheckpointWriteError; the file is what it was then."""
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
        raise CommandError(f"{file.name} is no file that can be replaced: give --to")
    path = file.path.resolve()
    if copies is not None and not Path(copies).is_dir():
        raise CommandError(f"--copies: {copies} is not a directory")
    _check_no_kubelet(path.parent)
    if checkpoint.read(path) != file.data:
        raise CommandError(f"{file.name} has changed meanwhile: is its kubelet stopped? Try again")
    copy = _keep(Path(copies) if copies is not None else _copies(path.parent), path, file.data)
    store = checkpoint.FileStore(path.parent, path.name, files=_Like(path.stat()))
    store.write(data)
    return Written(file.name, str(copy))


def _check_no_kubelet(directory: Path) -> None:
    """It would write its own file over this one, and not read it before its next start."""
    socket = directory / KUBELET_SOCKET
    with contextlib.suppress(OSError):  # a path too long for a socket has nobody behind it
        if socket.exists() and sockets.is_alive(socket):
            raise CommandError(
                f"a kubelet serves {socket}: it would overwrite the file with what it has in "
                "memory; stop it first, or give --to"
            )


def _copies(directory: Path) -> Path:
    return directory.parent if directory.name == _CLEANED else directory


def _keep(directory: Path, path: Path, data: bytes) -> Path:
    """A copy under the first name that is free."""
    for number in itertools.count(1):
        copy = directory / f"{path.name}.before-{number}"
        with contextlib.suppress(FileExistsError):
            _create(copy, data)
            return copy
    raise AssertionError("numbers never end")


def _create(path: Path, data: bytes) -> None:
    """A new file, on the disk when this returns."""
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
    """Creates files with the mode and, where that is allowed, the owner of another."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, self._status.st_uid, self._status.st_gid)
        os.fchmod(descriptor, self._status.st_mode & 0o7777)
        return descriptor
