"""Cutting the connections to a socket that gRPC serves in this process.

gRPC can end a call, or a server as a whole, but not a connection. The kernel can: a
descriptor of our own for the same connection shuts it down, and gRPC sees what it would see
of a peer that is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["drop_connections"]

_DESCRIPTORS = Path("/proc/self/fd")


def drop_connections(bound: Path) -> int:
    """Shut down every connection that was accepted on the socket bound to ``bound``; returns
    how many. The socket goes on listening."""
    return sum(_drop(int(entry.name), str(bound)) for entry in list(_DESCRIPTORS.iterdir()))


def _drop(number: int, bound: str) -> bool:
    # Of a descriptor that is another thread's anything may become meanwhile; not of a copy.
    try:
        copy = os.dup(number)
    except OSError:
        return False
    try:
        connection = socket.socket(fileno=copy)
    except OSError:  # no socket
        os.close(copy)
        return False
    with connection, contextlib.suppress(OSError):
        is_ours = connection.family == socket.AF_UNIX and connection.getsockname() == bound
        if is_ours and not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False
