"""The directories of a node, and making them ready for a kubelet."""

from __future__ import annotations

import contextlib
from pathlib import Path

import attrs

from checkpoint import CHECKPOINT_NAME, is_checkpoint_file
from devicemanager.core import messages
from devicemanager.core.api.deviceplugin import KUBELET_SOCKET
from devicemanager.core.errors import StartError
from devicemanager.kubelet.directory_lock import OwnedDirectory
from podresources import sockets
from podresources.errors import PodResourcesError

CLAIMS_STATE_NAME = "device_claims_state"


@attrs.frozen(eq=False, repr=False)
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

    @property
    def claims_state_path(self) -> Path:
        """What structured claims hold."""
        return self.root / CLAIMS_STATE_NAME

    def prepare(
        self,
        *,
        removes_files: bool = False,
        deprecation_file: bool = False,
        keeps_sockets: bool = False,
    ) -> None:
        """Check the paths, make the directories (0750), remove the sockets of plugins and
        kubelets that were here before.

        ``removes_files``: other files go as well, but for the checkpoint and what was set
        aside of it. ``deprecation_file``: an empty file of that name appears.
        ``keeps_sockets``: the sockets of plugins stay.

        Raises StartError, and removes nothing, if another kubelet serves here or one of the
        directories is not ours alone.
        """
        if not self.root.is_absolute():
            raise StartError(messages.BAD_SOCKET_PATH.format(path=self.plugin_socket))
        served = (self.plugin_socket, self.pod_resources_socket)
        for socket in served:
            _check_length(socket)
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(OwnedDirectory(self.root))
            plugins, pod_resources, _ = [
                stack.enter_context(OwnedDirectory(path, root))
                for path in (self.plugin_dir, served[1].parent, self.plugins_registry_dir)
            ]
            for directory, socket in zip((plugins, pod_resources), served, strict=True):
                directory.check_no_file(socket.name)
                _check_dead(socket)
            kept = {*plugins.sockets()} - {KUBELET_SOCKET} if keeps_sockets else set()
            # ``removeContents``, devicemanager/plugin/v1beta1/server.go, v1.33 and before.
            for name in plugins.files() if removes_files else plugins.sockets():
                if not (is_checkpoint_file(name) or name in kept):
                    plugins.remove(name)
            if deprecation_file:
                plugins.touch("DEPRECATION")
            for name in pod_resources.sockets():
                if _is_left_over(pod_resources.path / name):
                    pod_resources.remove(name)


def _check_length(socket: Path) -> None:
    try:
        sockets.check_path(socket)
    except PodResourcesError as error:
        raise StartError(str(error)) from error


def _check_dead(socket: Path) -> None:
    if sockets.is_alive(socket):
        raise StartError(f"another kubelet serves {socket}: stop it or choose another directory")


def _is_left_over(socket: Path) -> bool:
    """Whether a kubelet that was killed left it: its own name, or the private one it has
    while it starts. Nobody serves there."""
    is_ours = socket.name == KUBELET_SOCKET or sockets.is_private_name(socket.name)
    return is_ours and not sockets.is_alive(socket)
