"""gRPC server of a plugin on one socket, for one kubelet instance.

gRPC binds a socket with a hidden name. Then the socket is hard-linked to its real name, and the
hidden name is removed. So a visible socket is always served, and a stale socket is replaced without
a gap. When gRPC stops, it removes the path that it bound, even if that file now belongs to another
process. Here that path is the hidden name, which no longer exists, so gRPC removes nothing.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.sockets import claim
from devicemanager.plugin.service import Service
from podresources.sockets import FileIdentity, remove_if_same, target

__all__ = ["PluginServer"]

_OPTIONS = (
    # Two servers must never share a socket: one of them would silently get no calls.
    ("grpc.so_reuseport", 0),
    # A GetPreferredAllocation request lists every free device, so its size must be unlimited.
    ("grpc.max_receive_message_length", -1),
    # A peer that pings often must not lose its ListAndWatch stream.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

_MIN_GRACE = 0.05
"""Minimum time in seconds that running calls get to finish when the server stops.

If a stop aborts a call immediately, gRPC in the kubelet prints a line to standard error.
"""


class PluginServer:
    """Server on one socket, which is served from construction until :meth:`close`."""

    def __init__(
        self,
        directory: Path,
        names: Iterator[str],
        service: Service,
        pool: DaemonThreadPoolExecutor,
        add_others: Callable[[grpc.Server], None],
    ) -> None:
        """Start to serve on the first usable name of ``names``.

        ``add_others`` adds further services to the server. Raises OSError if the socket cannot be
        created or was removed immediately.
        """
        self._service = service
        self._server = grpc.server(pool.for_grpc(), options=_OPTIONS)
        service.add_to(self._server)
        add_others(self._server)
        bound = directory / f".{secrets.token_hex(4)}"
        try:
            self._server.add_insecure_port(target(bound))
            self._server.start()
            self.path = claim(bound, names)
        except BaseException as error:
            # Clean up even after KeyboardInterrupt: the threads of a leaked server would run until
            # the process exits.
            self._server.stop(None)
            bound.unlink(missing_ok=True)
            # gRPC reports a failed bind as a RuntimeError without errno.
            if isinstance(error, RuntimeError):
                raise OSError(f"cannot listen in {directory}: {error}") from error
            raise
        # A kubelet that starts at this moment removes all sockets and may have removed this one.
        identity = FileIdentity.of(self.path)
        if identity is None:
            self._server.stop(None)
            raise FileNotFoundError(f"socket {self.path} was removed right after it was created")
        self.identity = identity

    @property
    def endpoint(self) -> str:
        """File name of the socket, which RegisterRequest contains."""
        return self.path.name

    @property
    def service(self) -> Service:
        return self._service

    def is_reachable(self) -> bool:
        """True if the socket's path still belongs to this server's socket."""
        return FileIdentity.of(self.path) == self.identity

    def close(self, grace: float) -> threading.Event:
        """Remove the socket and end the streams; give calls ``grace`` seconds to finish.

        Return an event that is set when the server has stopped and released its descriptors.
        """
        # Remove the socket first: the kubelet must not dial a server that is about to stop.
        remove_if_same(self.path, self.identity)
        self._service.streams.end_all()
        gone: threading.Event = self._server.stop(max(grace, _MIN_GRACE))
        return gone
