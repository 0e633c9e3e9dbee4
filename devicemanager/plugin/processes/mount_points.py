"""Mount points in a directory that replaces ``/dev``.

The directory itself is mounted, so that processes see later changes to it. Common device nodes such
as ``/dev/null`` are mounted over empty entries of the directory. This module creates missing
entries before the mounts, and removes them when no process uses the directory any longer.

This module marks the entries that it creates, because it removes only these entries. A marked file
or directory has no permissions. The target of a marked link begins with ``//``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["is_mount_point", "lacking", "mount_points"]

_MARK = "//"


@contextlib.contextmanager
def mount_points(
    directory: Path, target: Path, names: Sequence[str], report: Callable[[str], None]
) -> Iterator[None]:
    """Create an empty entry in ``directory`` for each of ``names`` that exists in ``target``.

    Skip names that ``directory`` already has. For a link in ``target``, the new entry is a link,
    too. Use the function in a ``with`` statement. In the ``with`` block, mount the entries of
    ``target`` on the new files and directories. The last process that uses ``directory`` removes
    the new entries. ``report`` is called with one line if an entry cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            # Processes share this lock while they use the entries.
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
            stack.callback(_remove, directory, names, lock)
            for name in lacking(directory, target, names):
                _create(directory / name, target / name)
        except OSError as error:
            report(
                f"warning: cannot create mount points in {directory} ({error.strerror}): the "
                f"command does not see later changes to this directory at {target}; make it "
                "writable"
            )
        yield


def lacking(directory: Path, target: Path, names: Sequence[str]) -> list[str]:
    """Return the names that exist in ``target``, but not in ``directory``."""
    return [
        name
        for name in names
        if os.path.lexists(target / name) and not os.path.lexists(directory / name)
    ]


def is_mount_point(path: Path) -> bool:
    """True if ``path`` is a file or directory that this module created. False for a link."""
    mode = path.lstat().st_mode
    return not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & 0o777 == 0


def _create(path: Path, original: Path) -> None:
    # Another process may create the same entry. The mark is set atomically.
    with contextlib.suppress(FileExistsError):
        if original.is_symlink():
            # An absolute link, because only that can begin with the mark.
            path.symlink_to(f"/{original.parent / original.readlink()}")
        else:
            _create_marked(path, original.is_dir())


def _create_marked(path: Path, is_dir: bool) -> None:
    if is_dir:
        path.mkdir(mode=0)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0))
    # Some file systems, such as FAT, store no permissions.
    if not is_mount_point(path):
        _delete(path)
        raise OSError(errno.ENOTSUP, "the file system does not support permissions")


def _remove(directory: Path, names: Sequence[str], lock: int) -> None:
    """Remove all entries of this module, unless another process uses them."""
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in names:
            _remove_one(directory / name)


def _remove_one(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if path.is_symlink():
        if os.fspath(os.readlink(path)).startswith(_MARK):  # noqa: PTH115 - Path drops a slash
            path.unlink()
    elif is_mount_point(path):
        _delete(path)


def _delete(path: Path) -> None:
    path.rmdir() if path.is_dir() else path.unlink()
