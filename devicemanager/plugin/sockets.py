"""Socket files: whose they are, whether they live, and taking a name without a fight."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import attrs

__all__ = [
    "AUTHORITY",
    "FileIdentity",
    "claim",
    "directory_problem",
    "is_alive",
    "remove_if_ours",
    "target",
]

AUTHORITY = ("grpc.default_authority", "localhost")
"""The channel option for every connection to a unix socket. gRPC would send the quoted
path, which servers on Rust's h2 refuse."""

_CONNECT_TIMEOUT = 1.0


@attrs.frozen
class FileIdentity:
    """One file, as opposed to another that later bears the same name.

    The inode number alone would not do: a file system may give it out again at once.
    """

    device: int
    inode: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> FileIdentity | None:
        """None if there is no such file, or no directory for it."""
        try:
            found = path.lstat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns)


def directory_problem(directory: Path) -> str | None:
    """What keeps sockets from being made there, unless it is only that it is missing."""
    try:
        if not directory.exists():
            return None
    except PermissionError:
        return "cannot be reached by this user"
    if not directory.is_dir():
        return "is not a directory"
    if not os.access(directory, os.W_OK | os.X_OK):
        return "cannot be written to by this user"
    return None


def target(path: Path) -> str:
    """A unix socket's address as grpc takes it: a URI, so what is special is quoted."""
    return "unix:" + quote(str(path))


def is_alive(path: Path) -> bool:
    """Whether somebody listens there. What cannot be told counts as living."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        # A full backlog, or permissions: somebody is there.
        except OSError:
            return True
        return True


def claim(bound: Path, names: Iterator[str]) -> Path:
    """Give the socket ``bound`` the first of ``names`` that no living plugin uses.

    The link is made in one step and fails if the name is taken, so of two plugins that
    start at once only one gets it. A dead socket is replaced; what is no socket is left
    alone.
    """
    for name in names:
        path = bound.with_name(name)
        try:
            os.link(bound, path)
        except FileExistsError:
            if not _is_socket(path) or is_alive(path):
                continue
            bound.replace(path)
        else:
            bound.unlink()
        return path
    raise AssertionError("socket names never run out")


def remove_if_ours(path: Path, identity: FileIdentity) -> None:
    """Remove the file unless another has taken its place."""
    if FileIdentity.of(path) == identity:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return True
