"""Unix sockets as files: their paths, whose they are, and taking one over from the dead."""

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
"""What the kernel takes: ``sun_path`` has 108 bytes, one of them for the final NUL."""

PROBE_SECONDS = 1.0

_MODE = 0o660
"""Of a socket that is served, whatever the umask: connecting takes the right to write."""
_PRIVATE = re.compile(r"\.[0-9a-f]{3,16}")

AUTHORITY = ("grpc.default_authority", "localhost")
"""The channel option for every connection to a unix socket. As the kubelet's own clients do
(k/k#112597): gRPC would send the quoted path, which servers on Rust's h2 reject."""

CHANNEL_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    AUTHORITY,
    # A connection of its own, also to one path: grpc would share it, and remember a failure
    # of the one before.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
"""Those of a channel between a kubelet and a plugin."""


FRAME_HEAD: Final = 9
"""Bytes of the head of an HTTP/2 frame."""
_SETTINGS: Final = 4
# RFC 9113, 3.4: the client's preface is this text and a SETTINGS frame, here an empty one.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
"""What a client of gRPC says first; the server's own SETTINGS frame is the answer."""

_MOST_CONNECTIONS = 4096
_FEWEST_CONNECTIONS = 8
_GREETING_MS = 10_000


def server_options() -> list[tuple[str, int]]:
    """gRPC's options that bound what a server's connections may take: as many as leave most
    of the process's descriptors to others, and none that does not greet in time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft // 4
    most = max(_FEWEST_CONNECTIONS, min(_MOST_CONNECTIONS, share))
    return [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server_handshake_timeout_ms", _GREETING_MS),
    ]


def check_path(path: Path) -> None:
    """Raise SocketPathError for a path that no socket can have."""
    if not path.is_absolute():
        raise SocketPathError(f"socket path {str(path)!r} is relative: give an absolute path")
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise SocketPathError(
            f"socket path {path} has {length} bytes, the kernel allows {MAX_PATH_BYTES}: "
            "use a shorter directory"
        )


class FileIdentity(NamedTuple):
    """One file, as opposed to another that later bears the same name.

    The inode number alone does not do: a file system may give it out again at once.
    ``modified`` (nanoseconds) is 0 for a directory, whose time changes with its entries.
    """

    device: int
    inode: int
    modified: int

    @classmethod
    def of(cls, path: Path, *, follow_links: bool = False) -> FileIdentity | None:
        """None if there is no such file, or if it cannot be looked at."""
        try:
            return cls.from_status(path.stat(follow_symlinks=follow_links))
        except OSError:
            return None

    @classmethod
    def from_status(cls, status: os.stat_result) -> FileIdentity:
        """The same from a status that is at hand."""
        modified = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        return cls(status.st_dev, status.st_ino, modified)


def remove_if_same(path: Path, identity: FileIdentity | None) -> None:
    """Remove the file unless another has taken its place."""
    if identity is not None and FileIdentity.of(path) == identity:
        path.unlink(missing_ok=True)


def target(path: Path) -> str:
    """The path as gRPC wants it. gRPC reads it as a URI, so special characters are escaped."""
    return "unix:" + urllib.parse.quote(os.fsencode(path))


def prepare(path: Path) -> None:
    """Make the directory (0750, as the kubelet does) and remove a socket nobody serves.

    Raises SocketPathError for an impossible path, SocketInUse if somebody answers, and
    ServeError if something else is in the way.
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
        raise ServeError(f"{path} is not a socket: move it away, or choose another path")
    _remove_dead(path)


@contextlib.contextmanager
def published(path: Path, mode: int = _MODE) -> Iterator[Path]:
    """Yield a name to listen on; on success what listens there appears as ``path``, with
    ``mode``.

    The kubelet listens on a temporary name too (``CreateListener``, pkg/kubelet/util,
    v1.32) and renames it. A link in place of the rename fails if ``path`` exists, so of
    two servers that start at once one wins. It also keeps gRPC, which unlinks the name
    it listened on when it stops, from taking away a socket that a successor put here.
    """
    # Not longer than the name it stands for, or the kernel's limit would come earlier.
    private = path.with_name(("." + os.urandom(8).hex())[: max(4, len(path.name))])
    _probe_bind(private)
    try:
        yield private
        try:
            private.chmod(mode)
            os.link(private, path)
        except FileExistsError as error:
            raise SocketInUse(f"another server has just started on {path}") from error
        except OSError as error:
            raise ServeError(f"cannot create {path}: {error.strerror}") from error
    finally:
        private.unlink(missing_ok=True)


def is_private_name(name: str) -> bool:
    """Whether a socket of this name may be what ``published`` left when it was killed."""
    return _PRIVATE.fullmatch(name) is not None


def _probe_bind(path: Path) -> None:
    """Find out by binding why gRPC would fail: it does not tell the cause."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(str(path))
        except OSError as error:
            reason = error.strerror or error
            raise ServeError(f"cannot create a socket in {path.parent}: {reason}") from error
    path.unlink()


def is_alive(path: Path) -> bool:
    """Whether somebody listens there. What cannot be told counts as living."""
    # Else: a full backlog, or permissions: somebody is there.
    return _connect(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def is_settings(head: bytes) -> bool:
    """Whether a frame's head is that of the frame that every HTTP/2 server begins with."""
    return head[3] == _SETTINGS


def greets(path: Path, seconds: float) -> bool:
    """Whether somebody speaks HTTP/2 there, and says so within that time. gRPC could tell as
    well, but only by a thread that fails if its channel is closed meanwhile."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(seconds)
        peer.connect(str(path))
        peer.sendall(PREFACE)
        return is_settings(peer.recv(FRAME_HEAD, socket.MSG_WAITALL).ljust(FRAME_HEAD, b"\0"))
    return False


def _connect(path: Path) -> int:
    """The error number of an attempt to connect; 0 if somebody took it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        return probe.connect_ex(str(path))


def _remove_dead(path: Path) -> None:
    match code := _connect(path):
        case 0 | errno.EAGAIN:  # EAGAIN: somebody listens and is busy
            raise SocketInUse(f"another server answers on {path}: stop it, or use another path")
        case errno.ECONNREFUSED:
            path.unlink(missing_ok=True)
        case errno.ENOENT:
            return
        case _:
            raise ServeError(f"cannot tell who serves {path}: {os.strerror(code)}")
