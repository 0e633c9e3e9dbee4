"""The Registration service on the kubelet's own socket."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devicemanager.api.deviceplugin import VERSION
from devicemanager.api.names import is_extended_resource_name
from devicemanager.core import messages
from devicemanager.core.errors import StartError
from devicemanager.core.ids import ResourceName
from devicemanager.registration.registrar import Registrar, RegistrationRefused
from podresources import sockets
from podresources.errors import PodResourcesError
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

MAX_FILE_NAME = 255
_WORKERS = 32
"""Registrations that may be dialed at a time; more wait."""


def endpoint_fault(name: str) -> str | None:
    """What is wrong with ``RegisterRequest.endpoint``, which must be a file name (Q23)."""
    if not name:
        return "endpoint is empty: name the socket's file"
    if "/" in name or "\0" in name or name in {".", ".."}:
        return f"endpoint {name!r} is not a file name: name a socket in the plugin directory"
    if len(name.encode()) > MAX_FILE_NAME:
        return f"endpoint of {len(name.encode())} bytes is no file name: {MAX_FILE_NAME} at most"
    return None


class RegistrationServer(dp_grpc.RegistrationServicer):
    """The Registration service on ``<device-plugins dir>/kubelet.sock``."""

    def __init__(
        self, registrar: Registrar, socket: Path, on_error: Callable[[Exception], None]
    ) -> None:
        self._registrar = registrar
        self._socket = socket
        self._on_error = on_error
        self._identity: sockets.FileIdentity | None = None
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="registration")
        self._server = grpc.server(self._pool)
        dp_grpc.add_RegistrationServicer_to_server(self, self._server)

    def start(self) -> None:
        """Listen. Raises StartError with the kubelet's text."""
        try:
            with sockets.published(self._socket) as private:
                self._server.add_insecure_port(sockets.target(private))
                self._server.start()
            self._identity = sockets.FileIdentity.of(self._socket)
        except (PodResourcesError, RuntimeError, OSError) as error:
            raise StartError(messages.LISTEN_FAILED.format(error=error)) from error

    def stop(self) -> None:
        """Stop listening and remove the socket; registrations under way are cut off. Raises
        OSError if the socket cannot be removed; the server has stopped all the same."""
        try:
            sockets.remove_if_same(self._socket, self._identity)
        finally:
            self._server.stop(0).wait()
            self._pool.shutdown()

    def Register(self, request: dp.RegisterRequest, context: grpc.ServicerContext) -> dp.Empty:
        try:
            self._register(request)
        except RegistrationRefused as refused:
            # A Go error becomes code Unknown.
            context.abort(grpc.StatusCode.UNKNOWN, str(refused))
        except Exception as error:
            self._on_error(error)
            context.abort(grpc.StatusCode.UNKNOWN, f"a bug of the device manager: {error!r}")
        return dp.Empty()

    def _register(self, request: dp.RegisterRequest) -> None:
        resource = ResourceName(request.resource_name)
        versions = (request.version,)
        if VERSION in versions and is_extended_resource_name(resource):
            fault = endpoint_fault(request.endpoint)
            if fault is not None and "Q23" not in self._registrar.quirks:
                raise self._registrar.refuse(resource, messages.DIAL_FAILED.format(error=fault))
        self._registrar.register(resource, versions, self._socket.parent / request.endpoint)
