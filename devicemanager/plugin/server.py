"""One gRPC server on one socket, for one run of the kubelet."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from devicemanager.plugin.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.service import Service
from devicemanager.plugin.sockets import claim
from podresources.sockets import FileIdentity, remove_if_same, target

__all__ = ["PluginServer"]

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    # GetPreferredAllocation names every free device.
    ("grpc.max_receive_message_length", -1),
    # A peer that pings often must not lose its list stream for that.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


_LEAST_GRACE = 0.05
"""Seconds. A call that is cut off at once makes gRPC write a line to the kubelet's standard
error; after a farewell it does not."""


class PluginServer:
    """Serves from construction until :meth:`close`.

    grpc binds a hidden name, which is then linked to the real one. So the socket answers as
    soon as it appears, and it replaces a stale one without a gap. grpc removes the path that
    it has bound without checking whose file it is; under the hidden name it finds nothing.
    """

    def __init__(
        self,
        directory: Path,
        names: Iterator[str],
        service: Service,
        pool: DaemonThreadPoolExecutor,
        add_others: Callable[[grpc.Server], None],
    ) -> None:
        """``add_others`` adds what the same socket serves besides."""
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
            self._server.stop(None)
            bound.unlink(missing_ok=True)
            # grpc's own errors are RuntimeErrors without a number.
            if isinstance(error, RuntimeError):
                raise OSError(f"cannot listen in {directory}: {error}") from error
            raise
        identity = FileIdentity.of(self.path)
        if identity is None:
            self._server.stop(None)
            raise FileNotFoundError(f"{self.path} was removed as soon as it was made")
        self.identity = identity

    @property
    def endpoint(self) -> str:
        """The socket's file name, as it goes into RegisterRequest."""
        return self.path.name

    @property
    def service(self) -> Service:
        return self._service

    def is_reachable(self) -> bool:
        return FileIdentity.of(self.path) == self.identity

    def close(self, grace: float) -> threading.Event:
        """Remove the socket and end the streams; calls get ``grace`` seconds to finish.

        The event returned is set when the server is gone, and with it its descriptors.
        """
        remove_if_same(self.path, self.identity)
        self._service.streams.end_all()
        gone: threading.Event = self._server.stop(max(grace, _LEAST_GRACE))
        return gone
