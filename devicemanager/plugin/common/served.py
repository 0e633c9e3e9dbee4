"""A gRPC server on one unix socket.

gRPC binds a socket with a hidden name. Then the socket gets its real name. So a visible socket is
always served, and a stale socket is replaced without a gap. When gRPC stops, it removes the path
that it bound, even if that file now belongs to another process. Here that path is the hidden name,
which no longer exists, so gRPC removes nothing.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from podresources.sockets import FileIdentity, remove_if_same, target

__all__ = ["SERVER_OPTIONS", "ServedSocket", "replace"]

SERVER_OPTIONS = (
    # Two servers must never share a socket: one of them would silently get no calls.
    ("grpc.so_reuseport", 0),
    # The size of a request depends on the node: GetPreferredAllocation lists every free device.
    ("grpc.max_receive_message_length", -1),
    # A peer that pings often must not lose its stream.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)
"""Options for ``grpc.server``: one server per socket, and no limit on request sizes or pings."""

Publish = Callable[[Path], Path]
"""Function that moves a socket from a hidden path to its real path, and returns the real path."""


class Server(Protocol):
    """Methods of ``grpc.Server`` that this module uses."""

    def add_insecure_port(self, address: str) -> int: ...

    def start(self) -> None: ...

    def stop(self, grace: float | None) -> threading.Event: ...


class ServedSocket:
    """A gRPC server on one socket. It serves from construction until :meth:`close`."""

    def __init__(self, server: Server, directory: Path, publish: Publish) -> None:
        """Start the server. Raises OSError if the socket cannot be created or was removed
        immediately."""
        self._server = server
        bound = directory / f".{secrets.token_hex(4)}"
        try:
            server.add_insecure_port(target(bound))
            server.start()
            self.path = publish(bound)
        except BaseException as error:
            # Clean up even after KeyboardInterrupt: the threads of a leaked server would run until
            # the process exits.
            server.stop(None)
            bound.unlink(missing_ok=True)
            # gRPC reports a failed bind as a RuntimeError without errno.
            if isinstance(error, RuntimeError):
                raise OSError(f"cannot listen in {directory}: {error}") from error
            raise
        # A kubelet that starts at this moment removes all sockets and may have removed this one.
        identity = FileIdentity.of(self.path)
        if identity is None:
            server.stop(None)
            raise FileNotFoundError(f"socket {self.path} was removed right after it was created")
        self.identity = identity

    def is_reachable(self) -> bool:
        """True if the socket at ``path`` is still the socket of this server."""
        return FileIdentity.of(self.path) == self.identity

    def hide(self) -> None:
        """Remove the socket, unless its path belongs to another server. Connections stay open."""
        remove_if_same(self.path, self.identity)

    def close(self, grace: float | None) -> threading.Event:
        """Stop the server, but do not remove its socket (see :meth:`hide`).

        Calls have ``grace`` seconds to finish; None cancels them immediately. Return an event that
        is set when the server has stopped and released its descriptors.
        """
        return self._server.stop(grace)


def replace(path: Path) -> Publish:
    """Return a function that gives a socket the name ``path``, in place of an earlier file."""

    def publish(bound: Path) -> Path:
        bound.replace(path)
        return path

    return publish
