"""Who listens on a socket: asked by connecting and hanging up at once, without a word."""

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

__all__ = ["MOST_SOCKETS", "look", "sockets_in", "text_of"]

MOST_SOCKETS: Final = 1000
"""Sockets of one directory that are looked at."""
_PATIENCE: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")
_LONGEST_NAME: Final = 64


def sockets_in(directory: Path) -> Iterator[SocketSeen]:
    """The sockets of a directory, sorted by name. Raises OSError."""
    with os.scandir(directory) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
        )
    for name in islice(names, MOST_SOCKETS):
        yield look(directory / name)


def look(path: Path) -> SocketSeen:
    """Whether somebody listens there, and who. Raises nothing."""
    shown = text_of(path)
    try:
        pid = _listener(path)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in (errno.ECONNREFUSED, errno.ENOENT):
            return SocketSeen(shown, Listening.DEAD)
        reason = getattr(error, "strerror", None) or str(error)
        return SocketSeen(shown, Listening.UNKNOWN, problem=reason)
    return SocketSeen(shown, Listening.LISTENING, pid or None, _name_of(pid) if pid else None)


def text_of(path: Path | str) -> str:
    """A path as text that JSON can hold, whatever bytes are in it."""
    return os.fsencode(path).decode(errors="replace")


def _listener(path: Path) -> int:
    """The process that listens, 0 if it is none that can be seen. Raises OSError."""
    with contextlib.ExitStack() as stack:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, directory)
        probe = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        probe.settimeout(_PATIENCE)
        # By way of the directory: the path itself may be too long for a socket's address.
        try:
            probe.connect(f"/proc/self/fd/{directory}/{path.name}")
        except BlockingIOError:
            return 0  # somebody listens and has no time
        data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid: int = _CREDENTIALS.unpack(data)[0]
        return pid


def _name_of(pid: int) -> str | None:
    with contextlib.suppress(OSError, FileRejected):
        name = read_regular(f"/proc/{pid}/comm", _LONGEST_NAME)
        return name.decode(errors="replace").strip()
    return None
