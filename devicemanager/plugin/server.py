"""One gRPC server on one socket, for one kubelet instance.

gRPC binds a hidden name, which is then hard-linked to the real one. So a visible socket
is always served, and it replaces a stale one without a gap. When gRPC stops, it removes the
path that it bound without checking the owner; under the hidden name it finds nothing.
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
    # GetPreferredAllocation lists every free device.
    ("grpc.max_receive_message_length", -1),
    # A peer that pings often must not lose its ListAndWatch stream.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

_MIN_GRACE = 0.05
"""Seconds. If a stop aborts a call at once, gRPC prints a line to the kubelet's standard error."""


class PluginServer:
    """A served socket, from construction until :meth:`close`."""

    def __init__(
        self,
        directory: Path,
        names: Iterator[str],
        service: Service,
        pool: DaemonThreadPoolExecutor,
        add_others: Callable[[grpc.Server], None],
    ) -> None:
        """``add_others`` adds further services of the same socket."""
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
            # Also for KeyboardInterrupt: a leaked server would keep its threads until the process
            # exits.
            self._server.stop(None)
            bound.unlink(missing_ok=True)
            # gRPC reports a failed bind as a RuntimeError without errno.
            if isinstance(error, RuntimeError):
                raise OSError(f"cannot listen in {directory}: {error}") from error
            raise
        # A kubelet that starts at this moment removes all sockets, perhaps also this one.
        identity = FileIdentity.of(self.path)
        if identity is None:
            self._server.stop(None)
            raise FileNotFoundError(f"{self.path} was removed right after it was created")
        self.identity = identity

    @property
    def endpoint(self) -> str:
        """The socket's file name, as in RegisterRequest."""
        return self.path.name

    @property
    def service(self) -> Service:
        return self._service

    def is_reachable(self) -> bool:
        """True if the socket's path still leads to this server."""
        return FileIdentity.of(self.path) == self.identity

    def close(self, grace: float) -> threading.Event:
        """Remove the socket and end the streams; give calls ``grace`` seconds to finish.

        The returned event is set when the server has stopped and released its descriptors.
        """
        # Before the streams end: the kubelet must not dial a server that is about to stop.
        remove_if_same(self.path, self.identity)
        self._service.streams.end_all()
        gone: threading.Event = self._server.stop(max(grace, _MIN_GRACE))
        return gone
