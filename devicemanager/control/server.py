"""The servers of control APIs."""

from __future__ import annotations

import abc
import contextlib
import socket
from pathlib import Path
from typing import Final

import attrs

from devicemanager.control.access import Access, Gate, TcpAddress
from devicemanager.control.app import Application
from devicemanager.control.listening import listen_tcp, listen_unix, new_token
from devicemanager.control.serving import HttpService, Prepared, Serving
from devicemanager.kubelet.mock import MockKubelet

__all__ = ["SOCKET_NAME", "TOKEN_NAME", "ControlServer", "Opened", "SteeringServer"]

SOCKET_NAME: Final = "control.sock"
TOKEN_NAME: Final = "control.token"


@attrs.frozen
class Opened:
    """Where a server listens, and who may ask there."""

    listeners: list[socket.socket]
    gate: Gate


class SteeringServer(Serving):
    """Serves a control API on ``control.sock`` in a directory, mode 0600.

    A context manager; or call ``start`` and ``stop``.
    """

    what = "the control API"

    def __init__(self, directory: Path, tcp: str | None, allow_remote: bool) -> None:
        """``directory`` has to be there; the rest as ``ControlServer``."""
        super().__init__()
        self._directory = directory
        self._tcp = None if tcp is None else TcpAddress.allowed(tcp, allow_remote)
        self.allow_remote = allow_remote
        self.address: str | None = None
        """Where it listens on TCP while it runs, with the port that it got."""

    @abc.abstractmethod
    def _application(self, gate: Gate) -> HttpService:
        """What answers; made on the server's loop."""

    @property
    def socket_path(self) -> Path:
        """The unix socket."""
        return self._directory / SOCKET_NAME

    @property
    def token_path(self) -> Path:
        """The token for TCP, there while the server runs."""
        return self._directory / TOKEN_NAME

    def listen(self, stack: contextlib.ExitStack, also: TcpAddress | None = None) -> Opened:
        """Listen, and on ``also`` besides, for a server that serves more than this API. What
        is to be undone at the end goes on the stack. Raises StartError."""
        listeners = [listen_unix(self.socket_path, stack)]
        addresses = list(dict.fromkeys(each for each in (self._tcp, also) if each is not None))
        token = new_token(self.token_path, stack) if addresses else None
        bound = [listen_tcp(each, stack) for each in addresses]
        doors = tuple(Access(TcpAddress.of(listener), token) for listener in bound)
        if doors:
            self.address = str(doors[0].address)
            stack.callback(setattr, self, "address", None)
        return Opened([*listeners, *bound], Gate(doors))

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        opened = self.listen(stack)
        return Prepared(opened.listeners, lambda: self._application(opened.gate))


class ControlServer(SteeringServer):
    """Serves the control API of a kubelet on ``<root>/control.sock``, mode 0600.

    A context manager; or call ``start`` and ``stop``. The kubelet need not be running, and may
    be stopped and started meanwhile, but its directory has to be there.
    """

    def __init__(
        self, kubelet: MockKubelet, *, tcp: str | None = None, allow_remote: bool = False
    ) -> None:
        """``tcp`` is where to listen besides, such as ``127.0.0.1:8001`` (port 0: any): every
        request there needs the token of ``<root>/control.token`` (mode 0600, new with each
        start). ``allow_remote``: also on an address that other hosts reach; nothing is
        encrypted. Raises ValueError for an address that is none, or may not be used."""
        super().__init__(kubelet.root, tcp, allow_remote)
        self._kubelet = kubelet

    def _application(self, gate: Gate) -> HttpService:
        return Application(self._kubelet, gate)
