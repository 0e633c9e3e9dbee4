"""Layouts of a recorder's sockets: in a separate directory, or in place of the kubelet's socket.

With ``PrivateDirectory``, plugins register in a directory of the recorder. With ``InPlace``, the
recorder's socket replaces ``kubelet.sock``, and the kubelet's socket gets another name. In both
layouts, the kubelet finds the proxies of the plugins in its own directory.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Protocol

import grpc

from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.plugin.common.sockets import socket_names
from devicemanager.plugin.recording.errors import RecordingError
from podresources import sockets
from podresources.sockets import FileIdentity

__all__ = ["InPlace", "PrivateDirectory", "SocketLayout"]


class SocketLayout(Protocol):
    """Layout of the sockets of recorder, kubelet and proxies."""

    plugin_dir: Path
    """Directory in which plugins find the recorder's socket."""
    kubelet_socket: Path
    """Path of the kubelet's socket while the recorder serves."""
    removes_plugins: bool
    """True if the recorder must remove a plugin's socket after the kubelet removed the socket of
    the plugin's proxy."""

    def kubelet(self) -> FileIdentity | None:
        """Return the identity of the running kubelet's socket; None if no kubelet is running."""

    def serve(self, server: grpc.Server) -> None:
        """Start ``server`` on the socket where plugins expect the Registration service.

        Raises RecordingError, PodResourcesError or OSError if that fails.
        """

    def leave(self) -> None:
        """Remove the recorder's socket, and restore the kubelet's socket if it was replaced."""

    def proxy_path(self, endpoint: str) -> Path:
        """Return the path of the proxy socket for a plugin's endpoint."""


class PrivateDirectory:
    """Layout with a separate directory, in which plugins register with the recorder.

    The proxies in the kubelet's directory have the names of the plugins' sockets.
    """

    removes_plugins = True

    def __init__(self, kubelet_dir: Path, plugin_dir: Path) -> None:
        self.plugin_dir = plugin_dir
        self.kubelet_socket = kubelet_dir / KUBELET_SOCKET
        self._served = plugin_dir / KUBELET_SOCKET
        self._identity: FileIdentity | None = None
        # Check now, because a path that is too long can never work.
        sockets.check_path(self.kubelet_socket)
        sockets.check_path(self._served)

    def kubelet(self) -> FileIdentity | None:
        return FileIdentity.of(self.kubelet_socket)

    def serve(self, server: grpc.Server) -> None:
        sockets.prepare(self._served)
        with sockets.published(self._served) as private:
            server.add_insecure_port(sockets.target(private))
            server.start()
        self._identity = FileIdentity.of(self._served)

    def leave(self) -> None:
        sockets.remove_if_same(self._served, self._identity)

    def proxy_path(self, endpoint: str) -> Path:
        # The plugin's name is unused in the kubelet's directory.
        return self.kubelet_socket.with_name(endpoint)


class InPlace:
    """Layout in which the recorder's socket replaces ``kubelet.sock``.

    The kubelet's socket has another name while the recorder serves. Plugins see this as a kubelet
    restart and re-register.
    """

    removes_plugins = False

    _ASIDE = f".{KUBELET_SOCKET}.recorded"
    _PREFIX = "recorded-"

    def __init__(self, kubelet_dir: Path) -> None:
        self.plugin_dir = kubelet_dir
        self.kubelet_socket = kubelet_dir / self._ASIDE
        self._served = kubelet_dir / KUBELET_SOCKET
        self._own_identity: FileIdentity | None = None
        self._kubelet_identity: FileIdentity | None = None
        sockets.check_path(self.kubelet_socket)
        self._restore_after_crash()

    def _restore_after_crash(self) -> None:
        """Restore the name of the kubelet's socket if an earlier recorder was killed."""
        if self.kubelet_socket.is_socket() and not sockets.is_alive(self._served):
            self.kubelet_socket.replace(self._served)

    def kubelet(self) -> FileIdentity | None:
        found = FileIdentity.of(self._served)
        # If the recorder's socket is at the path, the kubelet's socket is the one that was renamed.
        if found is None or found == self._own_identity:
            return self._kubelet_identity if found is not None else None
        # A stale socket, or one that is not served yet, does not count as a kubelet.
        return found if sockets.is_alive(self._served) else None

    def serve(self, server: grpc.Server) -> None:
        private = self._served.with_name(f".{secrets.token_hex(4)}")
        server.add_insecure_port(sockets.target(private))
        server.start()
        # The kubelet's socket has the same permissions.
        private.chmod(0o660)
        identity = FileIdentity.of(private)
        # Remove the renamed socket of an earlier kubelet instance.
        self.kubelet_socket.unlink(missing_ok=True)
        self._kubelet_identity = FileIdentity.of(self._served)
        try:
            self.kubelet_socket.hardlink_to(self._served)
        except FileNotFoundError as error:
            private.unlink(missing_ok=True)
            raise RecordingError(
                f"the kubelet's socket {self._served} was removed while the recorder started"
            ) from error
        # The replacement is atomic, so kubelet.sock exists at all times.
        private.replace(self._served)
        self._own_identity = identity

    def leave(self) -> None:
        identity, self._own_identity = self._own_identity, None
        if identity is None:
            return
        # If the identity differs, a new kubelet has already replaced the recorder's socket.
        if FileIdentity.of(self._served) == identity:
            if sockets.is_alive(self.kubelet_socket):
                self.kubelet_socket.replace(self._served)
            else:
                self._served.unlink(missing_ok=True)
        self.kubelet_socket.unlink(missing_ok=True)

    def proxy_path(self, endpoint: str) -> Path:
        # `socket_names` shortens a name that is too long for a socket path.
        names = socket_names(f"{self._PREFIX}{endpoint}", str(self.plugin_dir), unique=False)
        return self.plugin_dir / next(names)
