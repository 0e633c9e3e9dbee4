"""A directory that nobody else can change, held open.

The kubelet removes files in its directories, as root on a node. Whoever could put a link in
the place of one of them, or exchange it meanwhile, would choose whose files go. So each is
opened once, is looked at through its descriptor, and everything happens relative to that.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from devicemanager.core.errors import StartError

__all__ = ["OwnedDirectory"]

_MODE = 0o750
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnedDirectory:
    """An open directory; a context manager that closes it. Every method raises StartError
    with one line that names the path."""

    def __init__(self, path: Path, parent: OwnedDirectory | None = None) -> None:
        """Make the directory (0750) if it is missing, and open it.

        ``parent`` is the open directory that it is in. Rejected are links, directories of
        other users and those that all users may write in. The group is the owner's choice.
        """
        self.path = path
        name: str = os.fspath(path) if parent is None else path.name
        at: int | None = None if parent is None else parent._descriptor
        try:
            if parent is None:
                path.mkdir(mode=_MODE, parents=True, exist_ok=True)
            elif not _exists(name, at):
                os.mkdir(name, _MODE, dir_fd=at)
            self._descriptor: int = os.open(name, _FLAGS, dir_fd=at)
        except OSError as error:
            self._reject_to_open(error)
        try:
            self._check()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _reject_to_open(self, error: OSError) -> NoReturn:
        if self.path.is_symlink():
            raise StartError(
                f"{self.path} is a link: give the kubelet the directory itself"
            ) from error
        if self.path.exists() and not self.path.is_dir():
            raise StartError(f"{self.path} is not a directory: choose another one") from error
        raise StartError(f"cannot use directory {self.path}: {error.strerror}") from error

    def _check(self) -> None:
        status, user = os.fstat(self._descriptor), os.geteuid()
        if status.st_uid != user:
            raise StartError(
                f"directory {self.path} belongs to user {status.st_uid}, not to {user}, who runs "
                "this: choose another one"
            )
        if status.st_mode & stat.S_IWOTH:
            raise StartError(
                f"directory {self.path} is writable by others: run chmod o-w, or choose another one"
            )
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self._descriptor):
            is_read_only = os.fstatvfs(self._descriptor).f_flag & os.ST_RDONLY
            reason = " on a read-only file system" if is_read_only else ""
            raise StartError(f"cannot write in directory {self.path}{reason}: choose another one")

    def sockets(self) -> Iterator[str]:
        """The names of the sockets in it, sorted; with those of links to sockets."""
        return (name for name in self._names() if self._is_socket(name, follow_links=True))

    def files(self) -> Iterator[str]:
        """The names of everything in it but directories, sorted; links are not followed."""
        for name in self._names():
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield name

    def touch(self, name: str) -> None:
        """Make an empty file; one that is there stays as it is."""
        try:
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=self._descriptor))
        except OSError as error:
            raise StartError(f"cannot make {self.path / name}: {error.strerror}") from error

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._descriptor) as entries:
                return sorted(entry.name for entry in entries)
        except OSError as error:
            raise StartError(f"cannot read directory {self.path}: {error.strerror}") from error

    def check_no_file(self, name: str) -> None:
        """Reject to start if something that is no socket has this name."""
        if _exists(name, self._descriptor) and not self._is_socket(name, follow_links=False):
            raise StartError(
                f"{self.path / name} is not a socket: move it away, or choose another path"
            )

    def remove(self, name: str) -> None:
        """Remove a name, of a link the link itself."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return  # its plugin was faster
        except OSError as error:
            path = self.path / name
            raise StartError(f"cannot remove {path}: {error.strerror}") from error

    def _is_socket(self, name: str, *, follow_links: bool) -> bool:
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=follow_links)
        except OSError:
            return False  # gone meanwhile, or a link that leads nowhere
        return stat.S_ISSOCK(status.st_mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)


def _exists(name: str, at: int | None) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
