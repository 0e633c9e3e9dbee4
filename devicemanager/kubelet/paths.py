"""Where a kubelet's directories and files are, as attributes."""

from __future__ import annotations

from pathlib import Path

from devicemanager.kubelet.directories import Directories

__all__ = ["NodePaths"]


class NodePaths:
    """The paths of a kubelet; whoever inherits sets ``_directories``."""

    _directories: Directories

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return self._directories.root

    @property
    def plugin_dir(self) -> Path:
        """``<root>/device-plugins``: plugins put their sockets here."""
        return self._directories.plugin_dir

    @property
    def plugin_socket(self) -> Path:
        """The Registration service, ``kubelet.sock`` in ``plugin_dir``."""
        return self._directories.plugin_socket

    @property
    def pod_resources_socket(self) -> Path:
        """The PodResources service."""
        return self._directories.pod_resources_socket

    @property
    def plugins_registry_dir(self) -> Path:
        """Plugins that wait to be found put their sockets here."""
        return self._directories.plugins_registry_dir

    @property
    def checkpoint_path(self) -> Path:
        """``kubelet_internal_checkpoint`` in ``plugin_dir``."""
        return self._directories.checkpoint_path

    @property
    def claims_state_path(self) -> Path:
        """``device_claims_state`` in ``root``: what structured claims hold."""
        return self._directories.claims_state_path
