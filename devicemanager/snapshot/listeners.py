"""Find the process that listens on a socket.

The module connects to the socket, asks the kernel for the ID of the process, and closes the
connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.snapshot.model import Listening, SocketSeen

__all__ = ["MOST_SOCKETS", "listener_of", "sockets_in", "text_of"]

MOST_SOCKETS: Final = 1000
"""Maximum number of sockets that are checked in one directory."""
# A unix socket accepts a connection immediately, unless its backlog is full.
_CONNECT_SECONDS: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")
_LONGEST_NAME: Final = 64


def sockets_in(directory: Path) -> Iterator[SocketSeen]:
    """Yield the sockets in a directory with their states, sorted by file name.

    At most ``MOST_SOCKETS`` sockets are checked. Raises OSError if the directory cannot be read.
    """
    with os.scandir(directory) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
        )
    for name in islice(names, MOST_SOCKETS):
        yield listener_of(directory / name)


def listener_of(path: Path) -> SocketSeen:
    """Return the state of the socket at ``path``, and the process that listens on it. Never
    raises."""
    shown = text_of(path)
    try:
        pid = _listener(path)
    except (OSError, ValueError) as error:
        # If the connection is refused, the process that created the file has exited. If the file is
        # missing, it has just been removed.
        if getattr(error, "errno", None) in (errno.ECONNREFUSED, errno.ENOENT):
            return SocketSeen(shown, Listening.DEAD)
        reason = getattr(error, "strerror", None) or str(error)
        return SocketSeen(shown, Listening.UNKNOWN, problem=reason)
    return SocketSeen(shown, Listening.LISTENING, pid, _name_of(pid) if pid else None)


def text_of(path: Path | str) -> str:
    """Return a path as text that JSON can contain, even if the path is not valid UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def _listener(path: Path) -> int | None:
    """Return the ID of the process that listens; None if the process is not visible. Raises
    OSError."""
    with contextlib.ExitStack() as stack:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, directory)
        probe = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        probe.settimeout(_CONNECT_SECONDS)
        # Connect through a descriptor of the directory, because the path may be too long for a
        # socket address.
        try:
            probe.connect(f"/proc/self/fd/{directory}/{path.name}")
        except BlockingIOError:
            return None  # its backlog is full, so a process is listening
        # The kernel returns the ID of the process that called listen().
        data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        # The ID is 0 if the process is in another PID namespace.
        return _CREDENTIALS.unpack(data)[0] or None


def _name_of(pid: int) -> str | None:
    with contextlib.suppress(OSError, FileRejected):
        name = read_regular(f"/proc/{pid}/comm", _LONGEST_NAME)
        return name.decode(errors="replace").strip()
    return None
