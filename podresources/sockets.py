"""Helpers for unix sockets: check paths, create socket files, detect stale sockets.

All code that listens on a unix socket or connects to one uses this module. Examples are the
PodResources server and client, the registration service, plugins and the tools that inspect a node.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import socket
import stat
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from podresources.errors import ServeError, SocketInUse, SocketPathError

MAX_PATH_BYTES = 107
"""Longest socket path that Linux accepts, in bytes: ``sun_path`` has 108 bytes with the final
NUL."""

PROBE_SECONDS = 1.0

_MODE = 0o660
"""File mode of a published socket, independent of the umask. Clients need write permission to
connect."""
_PRIVATE = re.compile(r"\.[0-9a-f]{3,16}")

AUTHORITY = ("grpc.default_authority", "localhost")
"""Channel option that sets the authority of connections to unix sockets to ``localhost``, as in the
kubelet's clients (kubernetes/kubernetes#112597). By default, gRPC sends the percent-encoded socket
path as authority. Servers based on Rust's h2 library reject this authority."""

CHANNEL_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    AUTHORITY,
    # Without this option, all channels to one path share a connection, and a new channel starts
    # with the failure of an earlier one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
"""Channel options for connections between a kubelet and a plugin."""


FRAME_HEAD: Final = 9
"""Length of the header of an HTTP/2 frame, in bytes."""
_SETTINGS: Final = 4
# RFC 9113, section 3.4: a client first sends this text and a SETTINGS frame, which is empty here.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
"""First bytes that a gRPC client sends. The server responds with a SETTINGS frame."""

_MOST_CONNECTIONS = 4096
_FEWEST_CONNECTIONS = 8
_GREETING_MS = 10_000


def max_connections(divisor: int, *, least: int, most: int) -> int:
    """Return the maximum number of open connections of a server.

    This is the process's limit of file descriptors divided by ``divisor``, but at least ``least``
    and at most ``most``. The other descriptors are left to other servers of the process, such as a
    kubelet's.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = most if soft == resource.RLIM_INFINITY else soft // divisor
    return min(most, max(least, share))


def server_options() -> list[tuple[str, int]]:
    """Return gRPC options that limit the connections of a server.

    Connections use up to a quarter of the process's file descriptors. Clients must complete the
    handshake within 10 seconds.
    """
    limit = max_connections(4, least=_FEWEST_CONNECTIONS, most=_MOST_CONNECTIONS)
    return [
        ("grpc.max_allowed_incoming_connections", limit),
        ("grpc.server_handshake_timeout_ms", _GREETING_MS),
    ]


def check_path(path: Path) -> None:
    """Raise SocketPathError if the path of a socket is relative or too long."""
    if not path.is_absolute():
        raise SocketPathError(f"socket path {str(path)!r} is relative: use an absolute path")
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise SocketPathError(
            f"socket path {path} has {length} bytes, the kernel allows {MAX_PATH_BYTES}: "
            "use a shorter directory"
        )


class FileIdentity(NamedTuple):
    """Identity of a file, to detect that a path leads to a different file than before.

    ``modified`` is the modification time in nanoseconds. It is 0 for a directory, because the time
    changes with the directory's entries.
    """

    # Device and inode number are not enough: a file system can reuse the number of a removed file.

    device: int
    inode: int
    modified: int

    @classmethod
    def of(cls, path: Path, *, follow_links: bool = False) -> FileIdentity | None:
        """Return the identity of the file at ``path``; None if it does not exist or cannot be
        read."""
        try:
            return cls.from_status(path.stat(follow_symlinks=follow_links))
        except OSError:
            return None

    @classmethod
    def from_status(cls, status: os.stat_result) -> FileIdentity:
        """Return the identity of the file for which ``stat`` returned ``status``."""
        modified = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        return cls(status.st_dev, status.st_ino, modified)


def remove_if_same(path: Path, identity: FileIdentity | None) -> None:
    """Remove the file at ``path`` only if its identity is ``identity``."""
    if identity is not None and FileIdentity.of(path) == identity:
        path.unlink(missing_ok=True)


def target(path: Path) -> str:
    """Return the gRPC target of a socket path: a URI in which special characters are escaped."""
    return "unix:" + urllib.parse.quote(os.fsencode(path))


def prepare(path: Path) -> None:
    """Create the directory of a socket (mode 0750, as in the kubelet), and remove a stale socket.

    Raises SocketPathError for an invalid path, SocketInUse if a process is listening on the socket,
    and ServeError for other problems.
    """
    check_path(path)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ServeError(f"cannot use directory {path.parent}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise ServeError(f"{path} is not a socket: move it away or use another path")
    _remove_dead(path)


@contextlib.contextmanager
def published(path: Path, mode: int = _MODE) -> Iterator[Path]:
    """Yield a temporary path to listen on. At the end of the ``with`` block, the socket gets the
    name ``path`` and the file mode ``mode``.

    Raises ServeError if no socket can be created, and SocketInUse if ``path`` exists at the end of
    the block.
    """
    # The kubelet listens on a temporary name, too, and renames it (``CreateListener``,
    # pkg/kubelet/util, v1.32). Linking has two advantages over renaming. First, it fails if
    # ``path`` exists, so only one of two servers that start at the same time succeeds. Second, gRPC
    # unlinks the name on which it listened when it stops. With a link, it cannot remove the socket
    # of the next server.
    #
    # The temporary name is not longer than the final one, because the kernel limits the length of a
    # socket path.
    private = path.with_name(("." + os.urandom(8).hex())[: max(4, len(path.name))])
    _probe_bind(private)
    try:
        yield private
        try:
            private.chmod(mode)
            os.link(private, path)
        except FileExistsError as error:
            raise SocketInUse(
                f"another server has just started on {path}: stop it or use another path"
            ) from error
        except OSError as error:
            raise ServeError(f"cannot create {path}: {error.strerror}") from error
    finally:
        private.unlink(missing_ok=True)


def is_private_name(name: str) -> bool:
    """True if :func:`published` could have given this name to a temporary socket."""
    return _PRIVATE.fullmatch(name) is not None


def _probe_bind(path: Path) -> None:
    """Raise ServeError with the reason if no socket can be created at ``path``."""
    # The error of gRPC does not contain the reason.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(str(path))
        except OSError as error:
            reason = error.strerror or error
            raise ServeError(f"cannot create a socket in {path.parent}: {reason}") from error
    path.unlink()


def is_alive(path: Path) -> bool:
    """True if a process is listening on the socket, or if this cannot be determined."""
    # Other errors mean a full backlog or missing permissions: a process is probably listening.
    return _connect(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def is_settings(head: bytes) -> bool:
    """True if ``head`` is the header of a SETTINGS frame, which every HTTP/2 server sends first."""
    return head[3] == _SETTINGS


def greets(path: Path, seconds: float) -> bool:
    """True if a process responds with HTTP/2 on the socket at ``path`` within ``seconds``."""
    # gRPC reports a connection only on a thread of its own, and that thread fails if the channel is
    # closed meanwhile.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(seconds)
        peer.connect(str(path))
        peer.sendall(PREFACE)
        return is_settings(peer.recv(FRAME_HEAD, socket.MSG_WAITALL).ljust(FRAME_HEAD, b"\0"))
    return False


def _connect(path: Path) -> int:
    """Connect to a socket and disconnect. Return the error number, or 0 on success."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        return probe.connect_ex(str(path))


def _remove_dead(path: Path) -> None:
    match code := _connect(path):
        case 0 | errno.EAGAIN:  # EAGAIN: the backlog of a listening process is full
            raise SocketInUse(f"another server is listening on {path}: stop it or use another path")
        case errno.ECONNREFUSED:
            path.unlink(missing_ok=True)
        case errno.ENOENT:
            return
        case _:
            raise ServeError(
                f"cannot connect to the existing socket {path}: {os.strerror(code)}: "
                "use another path, or remove the socket if no process uses it"
            )
