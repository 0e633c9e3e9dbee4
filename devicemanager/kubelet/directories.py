"""The directories of a node, and making them ready for a kubelet."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from checkpoint import CHECKPOINT_NAME, is_checkpoint_file
from devicemanager.api.deviceplugin import KUBELET_SOCKET
from devicemanager.core import messages
from devicemanager.core.errors import StartError
from podresources import sockets
from podresources.errors import PodResourcesError, SocketInUse

_MODE = 0o750


@attrs.frozen
class Directories:
    """Where everything is, under one root directory."""

    root: Path

    @property
    def plugin_dir(self) -> Path:
        """Where plugins put their sockets, and the checkpoint is."""
        return self.root / "device-plugins"

    @property
    def plugin_socket(self) -> Path:
        """The Registration service."""
        return self.plugin_dir / KUBELET_SOCKET

    @property
    def pod_resources_socket(self) -> Path:
        """The PodResources service."""
        return self.root / "pod-resources" / KUBELET_SOCKET

    @property
    def plugins_registry_dir(self) -> Path:
        """Where plugins announce themselves to the plugin watcher."""
        return self.root / "plugins_registry"

    @property
    def checkpoint_path(self) -> Path:
        return self.plugin_dir / CHECKPOINT_NAME

    def prepare(self) -> None:
        """Check the paths, make the directories (0750), clear the plugin directory.

        Raises StartError, and touches nothing, if another kubelet serves here.
        """
        if not self.root.is_absolute():
            raise StartError(messages.BAD_SOCKET_PATH.format(path=self.plugin_socket))
        for socket in (self.plugin_socket, self.pod_resources_socket):
            self._take(socket)
        for directory in (self.plugin_dir, self.plugins_registry_dir):
            self._make(directory)
        self._clear()

    def _take(self, socket: Path) -> None:
        try:
            sockets.prepare(socket)
        except SocketInUse as error:
            raise StartError(
                f"another kubelet serves {socket}: stop it or choose another directory"
            ) from error
        except PodResourcesError as error:
            raise StartError(str(error)) from error

    @staticmethod
    def _make(directory: Path) -> None:
        try:
            directory.mkdir(mode=_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"cannot make directory {directory}: {error.strerror}") from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StartError(f"cannot write in directory {directory}: choose another one")

    def _clear(self) -> None:
        """Everything that is not a directory goes, except the checkpoint and what was set
        aside of it (``removeContents``, devicemanager/plugin/v1beta1/server.go, v1.32)."""
        for entry in os.scandir(self.plugin_dir):
            if is_checkpoint_file(entry.name) or entry.is_dir():
                continue
            try:
                os.unlink(entry.path)  # noqa: PTH108  # scandir gives no Path
            except FileNotFoundError:
                continue  # its plugin was faster
            except OSError as error:
                raise StartError(f"cannot remove {entry.path}: {error.strerror}") from error
