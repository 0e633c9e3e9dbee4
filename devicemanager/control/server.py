"""Servers of control APIs, on a unix socket and optionally on TCP with a token."""

from __future__ import annotations

import abc
import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from devicemanager.control.access import Access, Gate, TcpAddress
from devicemanager.control.feed import feeds_of
from devicemanager.control.http_server import (
    HttpServerThread,
    HttpService,
    Prepared,
    listen_tcp,
    listen_unix,
    new_token,
)
from devicemanager.control.operations import TABLE
from devicemanager.control.router import OperationRouter
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.objects.manifests.resource_claims import DRA_KINDS

__all__ = ["ApiServer", "ControlServer", "Opened", "kubelet_router"]

_SOCKET_NAME: Final = "control.sock"
_TOKEN_NAME: Final = "control.token"


@attrs.frozen
class Opened:
    """The sockets on which a server listens, and the access rules for their requests."""

    listeners: list[socket.socket]
    gate: Gate


class ApiServer(HttpServerThread):
    """Server of a control API on the socket ``control.sock`` in a directory.

    The socket has mode 0600. The server can also listen on TCP.

    Use it as a context manager, or call ``start`` and ``stop``.
    """

    what = "the control API"

    def __init__(self, directory: Path, tcp: str | None, allow_remote: bool) -> None:
        """Create the server without listening. ``directory`` must exist. ``ControlServer``
        documents ``tcp`` and ``allow_remote``."""
        super().__init__()
        self._directory = directory
        self._tcp = None if tcp is None else TcpAddress.allowed(tcp, allow_remote)
        self.allow_remote = allow_remote
        self.address: str | None = None
        """The TCP address with its actual port, while the server listens on TCP; otherwise None."""

    @abc.abstractmethod
    def _service(self, gate: Gate) -> HttpService:
        """Return the application that responds to requests. Called on the server's event loop."""

    @property
    def socket_path(self) -> Path:
        """The path of the unix socket."""
        return self._directory / _SOCKET_NAME

    @property
    def token_path(self) -> Path:
        """The file with the token for TCP; it exists while the server listens on TCP."""
        return self._directory / _TOKEN_NAME

    def listen(self, stack: contextlib.ExitStack, also: TcpAddress | None = None) -> Opened:
        """Internal: listen on the configured addresses and, if it is not None, on the TCP address
        ``also``. The live web page passes its own address, so one server serves the page and this
        API.

        Callbacks added to ``stack`` run when the server stops. Raises StartError.
        """
        listeners = [listen_unix(self.socket_path, stack)]
        # Equal addresses are merged, because an address can be bound only once.
        addresses = list(dict.fromkeys(each for each in (self._tcp, also) if each is not None))
        token = new_token(self.token_path, stack) if addresses else None
        bound = [listen_tcp(each, stack) for each in addresses]
        # Created after binding, because port 0 becomes an actual port.
        rules = tuple(Access(TcpAddress.of(listener), token) for listener in bound)
        if rules:
            self.address = str(rules[0].address)
            stack.callback(setattr, self, "address", None)
        return Opened([*listeners, *bound], Gate(rules))

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        opened = self.listen(stack)
        return Prepared(opened.listeners, lambda: self._service(opened.gate))


class ControlServer(ApiServer):
    """Server of the control API of a kubelet, on the socket ``<root>/control.sock`` (mode 0600).

    Use it as a context manager, or call ``start`` and ``stop``. The kubelet can be stopped and
    started while the server runs, but its directory must exist.
    """

    def __init__(
        self, kubelet: MockKubelet, *, tcp: str | None = None, allow_remote: bool = False
    ) -> None:
        """Create the server without listening. ``tcp`` is an additional address to listen on, such
        as ``127.0.0.1:8001``; port 0 stands for any free port. Requests over TCP need the token in
        ``<root>/control.token`` (mode 0600; each start creates a new one). ``allow_remote`` permits
        an address that other hosts can reach; traffic is not encrypted. Raises ValueError for an
        invalid or forbidden address."""
        super().__init__(kubelet.root, tcp, allow_remote)
        self._kubelet = kubelet

    def _service(self, gate: Gate) -> HttpService:
        return kubelet_router(self._kubelet, gate)


def kubelet_router(kubelet: MockKubelet, gate: Gate) -> OperationRouter:
    """Return the application that responds to requests for one kubelet. Must be called on the
    server's event loop."""

    def report_bug(text: str) -> None:
        kubelet.events.publish(EventKind.SERVER_ERROR, f"control API: {text}")

    def is_missing(names: Mapping[str, str]) -> bool:
        if "id" in names:
            return True  # an operation on a fault ID fails only if there is no such fault
        # If the kubelet is stopped, that is the reason for the error; the pod may exist.
        if not kubelet.is_serving:
            return False
        if "uid" in names:
            return not kubelet.has_pod(names["uid"])
        # Other operations name an object of DRA. An unknown kind is an error of the request.
        return names.get("kind", DRA_KINDS[0]) in DRA_KINDS

    return OperationRouter(
        TABLE,
        kubelet,
        gate,
        report_bug=report_bug,
        is_missing=is_missing,
        # Created by the router, because feeds share its worker threads and need its event loop.
        feeds=lambda workers: feeds_of(kubelet.events, kubelet.calls, workers),
    )
