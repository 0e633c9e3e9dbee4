"""gRPC server of a plugin on one socket, for one kubelet instance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.served import SERVER_OPTIONS, ServedSocket
from devicemanager.plugin.common.sockets import claim
from devicemanager.plugin.service import Service

__all__ = ["PluginServer"]

_MIN_GRACE = 0.05
"""Minimum grace period for calls in progress when the server stops, in seconds.

If a stop aborts a call immediately, gRPC in the kubelet prints a line to standard error.
"""


class PluginServer:
    """gRPC server of a plugin on one socket. It serves from construction until :meth:`close`."""

    def __init__(
        self,
        directory: Path,
        names: Iterator[str],
        service: Service,
        pool: DaemonThreadPoolExecutor,
        add_others: Callable[[grpc.Server], None],
    ) -> None:
        """Start to serve on the first of ``names`` that no running plugin uses.

        ``add_others`` adds further services to the server. Raises OSError if the socket cannot be
        created or was removed immediately.
        """
        self._service = service
        server = grpc.server(pool.for_grpc(), options=SERVER_OPTIONS)
        service.add_to(server)
        add_others(server)
        self._socket = ServedSocket(server, directory, lambda bound: claim(bound, names))

    @property
    def endpoint(self) -> str:
        """File name of the socket, as in ``RegisterRequest.endpoint``."""
        return self._socket.path.name

    @property
    def service(self) -> Service:
        return self._service

    def is_reachable(self) -> bool:
        """True if the socket of this server was neither removed nor replaced at its path."""
        return self._socket.is_reachable()

    def close(self, grace: float) -> threading.Event:
        """Remove the socket and end the streams; give calls ``grace`` seconds to finish.

        Return an event that is set when the server has stopped and released its descriptors.
        """
        # Remove the socket first: the kubelet must not dial a server that is about to stop.
        self._socket.hide()
        self._service.streams.end_all()
        return self._socket.close(max(grace, _MIN_GRACE))
