"""Cutting the connections to a socket that gRPC serves in this process.

gRPC can end a call, or a server as a whole, but not a connection. The kernel can: a
descriptor of our own for the same connection shuts it down, and gRPC sees what it would see
of a peer that is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

__all__ = ["drop_connections"]

_DESCRIPTORS = Path("/proc/self/fd")


def drop_connections(bound: Path) -> int:
    """Shut down every connection that was accepted on the socket bound to ``bound``; returns
    how many. The socket goes on listening."""
    numbers = [int(entry.name) for entry in _DESCRIPTORS.iterdir()]
    with contextlib.ExitStack() as stack:
        # All are found before the first is shut down: whoever notices may connect again at
        # once, and that connection is to stay.
        found = [stack.enter_context(each) for each in map(_socket, numbers) if each is not None]
        ours = [each for each in found if _is_connection(each, str(bound))]
        for each in ours:
            with contextlib.suppress(OSError):  # its peer was faster
                each.shutdown(socket.SHUT_RDWR)
        return len(ours)


def _socket(number: int) -> socket.socket | None:
    """A copy of a descriptor, if it is a socket: what another thread does to it is no matter."""
    try:
        # To close a copy of a file's would give up the process's locks on that file.
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        copy = os.dup(number)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _is_connection(each: socket.socket, bound: str) -> bool:
    if each.family != socket.AF_UNIX or each.getsockname() != bound:
        return False
    return not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
