"""Find the paths of a node's files, on the local machine or below a mount point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from devicemanager.snapshot.kubeletconfig import running_kubelet

__all__ = ["KUBELET_ROOT", "Places"]

KUBELET_ROOT: Final = "var/lib/kubelet"


@attrs.frozen
class Places:
    """Paths of a node's files. A node whose file system is mounted elsewhere has paths below its
    mount point."""

    host: Path
    """Root of the node's file system: ``/``, or the directory where it is mounted."""
    root: Path
    """Root directory of the kubelet, usually ``/var/lib/kubelet``."""
    plugin_dir: Path
    config: Path | None
    """Configuration file of the kubelet; None if it is unknown."""
    config_dir: Path | None = None
    pid: int | None = None
    """Process ID of the running kubelet; None if no kubelet was found."""
    flags: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def find(
        cls,
        host: Path = Path("/"),
        root: Path | None = None,
        plugin_dir: Path | None = None,
        config: Path | None = None,
    ) -> Places:
        """Return the paths of a kubelet's files.

        ``host`` is the root of the node's file system. If ``root`` is None, these are the paths of
        the node's own kubelet. Otherwise, ``root`` is the root directory of another kubelet, such
        as a mock kubelet. ``plugin_dir`` and ``config`` override the plugin directory and the
        configuration file.
        """
        # A kubelet can have another directory and configuration file; only its flags show this.
        pid, flags = (_running(host) if root is None else None) or (None, {})
        below = root or _on_host(host, flags.get("root-dir")) or host / KUBELET_ROOT
        fixed = host / KUBELET_ROOT / "device-plugins"
        plugins = below / "device-plugins"
        return cls(
            host=host,
            root=below,
            # Real kubelets always use this fixed directory; mock kubelets use one in their own
            # directory.
            plugin_dir=plugin_dir or (fixed if root is None else plugins),
            config=config or _on_host(host, flags.get("config")) or below / "config.yaml",
            config_dir=_on_host(host, flags.get("config-dir")),
            pid=pid,
            flags=flags,
        )

    @property
    def pod_resources(self) -> Path:
        """Path of the PodResources socket."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def registry(self) -> Path:
        """Directory of the sockets that the kubelet's plugin watcher finds."""
        return self.root / "plugins_registry"

    @property
    def pods(self) -> Path:
        """Directory with one subdirectory per pod, named by the pod's UID."""
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        """Directory with one subdirectory per pod, named by the pod's namespace, name and UID."""
        return self.host / "var/log/pods"


def _running(host: Path) -> tuple[int, dict[str, str]] | None:
    try:
        return running_kubelet(host / "proc")
    # Without access to the processes, use the default paths.
    except OSError:
        return None


def _on_host(host: Path, path: str | None) -> Path | None:
    """Return the local path of ``path``, which is a path on the node; None for None."""
    return host / path.lstrip("/") if path else None
