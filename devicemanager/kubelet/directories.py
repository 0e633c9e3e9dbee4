"""The directories of a node: where they are, how they are prepared, and temporary roots.

The kubelet removes files in its directories. On a node, it does so as root. A user who could
replace one of these directories with a link, before or during the removal, would choose which
files are deleted. Therefore ``OwnedDirectory`` opens each directory once, without following links.
It checks the owner and the permissions of the open directory, and addresses every file relative to
the descriptor of the open directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import attrs

from checkpoint import CHECKPOINT_NAME, is_checkpoint_file
from devicemanager.core import messages
from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.core.errors import StartError
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory
from podresources import sockets
from podresources.errors import PodResourcesError

__all__ = ["CLAIMS_STATE_NAME", "Directories", "OwnedDirectory", "TemporaryRoot"]

CLAIMS_STATE_NAME = "device_claims_state"
# As in ``checkpoint.dra``, which a start must not import.
DRA_STATE_NAME = "dra_manager_state"
PODS_API_SOCKET = "pods-api.sock"
_MODE = 0o750
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.frozen(eq=False, repr=False)
class Directories:
    """The paths of a kubelet's sockets, directories and files, all under one root directory."""

    root: Path

    @property
    def plugin_dir(self) -> Path:
        """Directory of the plugins' sockets and of the checkpoint."""
        return self.root / "device-plugins"

    @property
    def plugin_socket(self) -> Path:
        """Socket of the Registration service."""
        return self.plugin_dir / KUBELET_SOCKET

    @property
    def pod_resources_socket(self) -> Path:
        """Socket of the PodResources service."""
        return self.root / "pod-resources" / KUBELET_SOCKET

    @property
    def pods_api_socket(self) -> Path:
        """Socket of the kubelet's Pods API (KEP-4188)."""
        return self.root / "pods-api" / PODS_API_SOCKET

    @property
    def plugins_registry_dir(self) -> Path:
        """Directory in which the plugin watcher discovers plugins."""
        return self.root / "plugins_registry"

    @property
    def checkpoint_path(self) -> Path:
        """File of the device manager's checkpoint."""
        return self.plugin_dir / CHECKPOINT_NAME

    @property
    def claims_state_path(self) -> Path:
        """File with the allocations of the claims in ``MockKubelet.claims``."""
        return self.root / CLAIMS_STATE_NAME

    @property
    def dra_state_path(self) -> Path:
        """File with the claims that DRA drivers have prepared."""
        return self.root / DRA_STATE_NAME

    def prepare(
        self,
        *,
        removes_files: bool = False,
        deprecation_file: bool = False,
        keeps_sockets: bool = False,
        serves_pods: bool = False,
    ) -> None:
        """Check the paths, create the directories (mode 0750), and remove old sockets.

        In ``plugin_dir``, all sockets are removed. In the directories of PodResources and of the
        Pods API, only stale sockets of a kubelet are removed.

        With ``removes_files``, all other files in ``plugin_dir`` are removed, too, except the
        checkpoint and damaged checkpoints that earlier starts renamed. With ``deprecation_file``,
        an empty file ``DEPRECATION`` is created in ``plugin_dir``. With ``keeps_sockets``, the
        plugins' sockets stay in place. With ``serves_pods``, the directory of the Pods API is also
        prepared.

        Raises StartError, and removes nothing, if the path of a socket is invalid, if another
        kubelet uses these directories, or if other users could change one of the directories.
        """
        if not self.root.is_absolute():
            raise StartError(messages.BAD_SOCKET_PATH.format(path=self.plugin_socket))
        served = [self.plugin_socket, self.pod_resources_socket]
        if serves_pods:
            served.append(self.pods_api_socket)
        # Checked before anything is created: a path that is too long can never work.
        for socket in served:
            _check_length(socket)
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(OwnedDirectory(self.root))
            paths = [*(socket.parent for socket in served), self.plugins_registry_dir]
            directories = [stack.enter_context(OwnedDirectory(path, root)) for path in paths]
            plugins, *others = directories[:-1]
            # All checks come before the first removal: a rejected start changes nothing.
            for directory, socket in zip((plugins, *others), served, strict=True):
                directory.check_no_file(socket.name)
                _check_stale(socket)
            kept = {*plugins.sockets()} - {KUBELET_SOCKET} if keeps_sockets else set()
            # ``removeContents``, devicemanager/plugin/v1beta1/server.go, v1.33 and before.
            for name in plugins.files() if removes_files else plugins.sockets():
                if not (is_checkpoint_file(name) or name in kept):
                    plugins.remove(name)
            if deprecation_file:
                plugins.touch("DEPRECATION")
            # Other servers may have sockets in these directories: remove only those of a kubelet.
            for directory in others:
                for name in directory.sockets():
                    if _is_stale_kubelet_socket(directory.path / name):
                        directory.remove(name)


def _check_length(socket: Path) -> None:
    try:
        sockets.check_path(socket)
    except PodResourcesError as error:
        raise StartError(str(error)) from error


def _check_stale(socket: Path) -> None:
    if sockets.is_alive(socket):
        raise StartError(f"another kubelet serves {socket}: stop it or choose another directory")


def _is_stale_kubelet_socket(socket: Path) -> bool:
    """True if this socket was left behind by a kubelet that was killed.

    A kubelet's socket has its public name, or the private name that a server uses while it starts.
    """
    is_kubelet = socket.name in (KUBELET_SOCKET, PODS_API_SOCKET) or sockets.is_private_name(
        socket.name
    )
    return is_kubelet and not sockets.is_alive(socket)


class OwnedDirectory:
    """Open directory that this user owns and that is not world-writable; a context manager.

    Every method raises StartError if its operation fails. The error has one line and names the
    path.
    """

    def __init__(self, path: Path, parent: OwnedDirectory | None = None) -> None:
        """Create the directory (mode 0750) if it is missing, and open it.

        ``parent`` is the open parent directory. If it is None, missing parent directories are
        created, too.

        Raises StartError for a link, for a directory that is world-writable or belongs to another
        user, and for a directory in which this process cannot write. The group may have any
        permissions.
        """
        self.path = path
        name: str = os.fspath(path) if parent is None else path.name
        at: int | None = None if parent is None else parent._descriptor
        try:
            # Below an open parent, everything is relative to its descriptor: a link that replaces
            # the parent's path meanwhile has no effect.
            if parent is None:
                path.mkdir(mode=_MODE, parents=True, exist_ok=True)
            elif not _exists(name, at):
                os.mkdir(name, _MODE, dir_fd=at)
            self._descriptor: int = os.open(name, _FLAGS, dir_fd=at)  # fails for a link
        except OSError as error:
            self._explain(error)
        try:
            self._check()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _explain(self, error: OSError) -> NoReturn:
        is_link = is_other = False
        # These fail as well for a name that is too long, or without access to the parent.
        with contextlib.suppress(OSError):
            is_link = self.path.is_symlink()
            is_other = self.path.exists() and not self.path.is_dir()
        if is_link:
            raise StartError(
                f"{self.path} is a symbolic link: use the path of the directory itself"
            ) from error
        if is_other:
            raise StartError(f"{self.path} is not a directory: choose another path") from error
        raise StartError(f"cannot use directory {self.path}: {error.strerror}") from error

    def _check(self) -> None:
        status, user = os.fstat(self._descriptor), os.geteuid()
        if status.st_uid != user:
            raise StartError(
                f"directory {self.path} belongs to user {status.st_uid}, but the kubelet runs as "
                f"user {user}: choose another directory"
            )
        if status.st_mode & stat.S_IWOTH:
            raise StartError(
                f"directory {self.path} is writable by others: run chmod o-w on it, or choose "
                "another directory"
            )
        # A later write would fail as well, but without the advice in this error.
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self._descriptor):
            is_read_only = os.fstatvfs(self._descriptor).f_flag & os.ST_RDONLY
            reason = " on a read-only file system" if is_read_only else ""
            raise StartError(
                f"cannot write in directory {self.path}{reason}: choose another directory"
            )

    def sockets(self) -> Iterator[str]:
        """Return the names of the sockets and of links to sockets, sorted."""
        return (name for name in self._names() if self._is_socket(name, follow_links=True))

    def files(self) -> Iterator[str]:
        """Return the names of all entries except directories, sorted; a link counts as a file."""
        for name in self._names():
            with contextlib.suppress(OSError):  # removed in the meantime
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield name

    def touch(self, name: str) -> None:
        """Create an empty file with this name; do nothing if the file exists."""
        try:
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=self._descriptor))
        except OSError as error:
            raise StartError(f"cannot create {self.path / name}: {error.strerror}") from error

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._descriptor) as entries:
                return sorted(entry.name for entry in entries)
        except OSError as error:
            raise StartError(f"cannot read directory {self.path}: {error.strerror}") from error

    def check_no_file(self, name: str) -> None:
        """Raise StartError if this name exists in the directory and is not a socket."""
        if _exists(name, self._descriptor) and not self._is_socket(name, follow_links=False):
            raise StartError(
                f"{self.path / name} exists and is not a socket: remove it, or choose another "
                "directory"
            )

    def remove(self, name: str) -> None:
        """Remove the file, socket or link with this name; do nothing if it does not exist."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return  # for example, a plugin has removed its socket
        except OSError as error:
            path = self.path / name
            raise StartError(f"cannot remove {path}: {error.strerror}") from error

    def _is_socket(self, name: str, *, follow_links: bool) -> bool:
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=follow_links)
        except OSError:
            return False  # removed in the meantime, or a dangling link
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


class TemporaryRoot:
    """A temporary root directory with a short path.

    ``owner`` is the object that uses the directory. The directory is removed by ``remove``, when
    ``owner`` is garbage collected, or when the program exits, whichever comes first. A forked
    child process removes nothing.
    """

    def __init__(self, owner: object, *, in_memory: bool = False) -> None:
        """Create the directory. With ``in_memory``, ``/dev/shm`` replaces ``/tmp`` if possible.

        Raises StartError if no directory can be created.
        """
        try:
            self.path = short_directory(in_memory=in_memory)
        except NoDirectory as error:
            raise StartError(f"{error}: choose a root directory, or {ADVICE}") from error
        # Weak references: this object is part of its owner, and must not keep it alive.
        self._owner = weakref.ref(owner)
        self._remove = weakref.finalize(owner, _remove, self.path, os.getpid())

    def ensure(self) -> None:
        """Create the directory again under the same path if ``remove`` has removed it.

        Raises StartError if the directory cannot be created, or if the path exists: another program
        may own it now.
        """
        owner = self._owner()
        if self._remove.alive or owner is None:
            return
        try:
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise StartError(f"cannot create directory {self.path}: {error.strerror}") from error
        self._remove = weakref.finalize(owner, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove the directory and everything in it. Idempotent."""
        self._remove()


def _remove(directory: Path, owner: int) -> None:
    # Finalizers run in forked children too, when these exit.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
