"""Where the recorder stands: in a directory of its own, or in that of the kubelet."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Protocol

import grpc

from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.sockets import socket_names
from podresources import sockets
from podresources.sockets import FileIdentity

__all__ = ["InPlace", "Place", "PrivateDirectory"]


class Place(Protocol):
    """Names the sockets of all who take part, and puts the recorder's own in place."""

    plugin_dir: Path
    """Where plugins find the recorder."""
    upward: Path
    """The kubelet's own socket, once ``serve`` was called."""
    removes_plugins: bool
    """Whether a plugin's socket must be removed when the kubelet has removed its front."""

    def kubelet(self) -> FileIdentity | None:
        """Identify the kubelet that runs now; None if there is none to be seen."""

    def serve(self, server: grpc.Server) -> None:
        """Start the Registration service where plugins look for it. Raises RecordingError,
        PodResourcesError and OSError."""

    def leave(self) -> None:
        """Take the recorder's socket away, and put back what was there."""

    def front(self, endpoint: str) -> Path:
        """The socket that the kubelet is told instead of the plugin's."""


class PrivateDirectory:
    """Plugins register in a directory of the recorder, where each socket has the name that
    its front has in the kubelet's."""

    removes_plugins = True

    def __init__(self, kubelet_dir: Path, plugin_dir: Path) -> None:
        self.plugin_dir = plugin_dir
        self.upward = kubelet_dir / KUBELET_SOCKET
        self._served = plugin_dir / KUBELET_SOCKET
        self._identity: FileIdentity | None = None
        sockets.check_path(self.upward)
        sockets.check_path(self._served)

    def kubelet(self) -> FileIdentity | None:
        return FileIdentity.of(self.upward)

    def serve(self, server: grpc.Server) -> None:
        sockets.prepare(self._served)
        with sockets.published(self._served) as private:
            server.add_insecure_port(sockets.target(private))
            server.start()
        self._identity = FileIdentity.of(self._served)

    def leave(self) -> None:
        sockets.remove_if_same(self._served, self._identity)
        self._identity = None

    def front(self, endpoint: str) -> Path:
        return self.upward.with_name(endpoint)


class InPlace:
    """The recorder's socket takes the place of ``kubelet.sock``; the kubelet's own has
    another name meanwhile. Plugins see a kubelet that has started, and register anew."""

    removes_plugins = False

    _ASIDE = f".{KUBELET_SOCKET}.recorded"
    _PREFIX = "recorded-"

    def __init__(self, kubelet_dir: Path) -> None:
        self.plugin_dir = kubelet_dir
        self.upward = kubelet_dir / self._ASIDE
        self._served = kubelet_dir / KUBELET_SOCKET
        self._ours: FileIdentity | None = None
        self._kubelets: FileIdentity | None = None
        sockets.check_path(self.upward)
        self._put_back_what_was_left()

    def _put_back_what_was_left(self) -> None:
        """A recorder that was killed has left the kubelet's socket under the other name."""
        if self.upward.is_socket() and not sockets.is_alive(self._served):
            self.upward.replace(self._served)

    def kubelet(self) -> FileIdentity | None:
        found = FileIdentity.of(self._served)
        if found is None or found == self._ours:
            return self._kubelets if found is not None else None
        # One that is just being made, or was left by a kubelet that was killed, is none.
        return found if sockets.is_alive(self._served) else None

    def serve(self, server: grpc.Server) -> None:
        private = self._served.with_name(f".{secrets.token_hex(4)}")
        server.add_insecure_port(sockets.target(private))
        server.start()
        private.chmod(0o660)
        ours = FileIdentity.of(private)
        self.upward.unlink(missing_ok=True)
        self._kubelets = FileIdentity.of(self._served)
        try:
            self.upward.hardlink_to(self._served)
        except FileNotFoundError as error:
            private.unlink(missing_ok=True)
            raise RecordingError(f"{self._served} has just been removed") from error
        # In one step: at no time is there no kubelet.sock.
        private.replace(self._served)
        self._ours = ours

    def leave(self) -> None:
        ours, self._ours = self._ours, None
        if ours is None:
            return
        if FileIdentity.of(self._served) == ours:
            if sockets.is_alive(self.upward):
                self.upward.replace(self._served)
            else:
                self._served.unlink(missing_ok=True)
        self.upward.unlink(missing_ok=True)

    def front(self, endpoint: str) -> Path:
        # Shortened where it would be too long for a socket.
        names = socket_names(f"{self._PREFIX}{endpoint}", str(self.plugin_dir), unique=False)
        return self.plugin_dir / next(names)
