"""Paths of a node's files, on this machine or where its file system is mounted."""

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
    """Paths to open from here."""

    host: Path
    """Root of the node's file system."""
    root: Path
    """Directory of the kubelet."""
    plugin_dir: Path
    config: Path | None
    """Configuration file of the kubelet; None if it is unknown."""
    config_dir: Path | None = None
    pid: int | None = None
    """Process of the running kubelet."""
    flags: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def find(
        cls,
        host: Path = Path("/"),
        root: Path | None = None,
        plugin_dir: Path | None = None,
        config: Path | None = None,
    ) -> Places:
        """Find the paths of the kubelet that runs on ``host``, or of the one with directory
        ``root``. With ``root``, a running kubelet is ignored: it is another one."""
        # A kubelet can have another directory and configuration; only its flags show that.
        pid, flags = (_running(host) if root is None else None) or (None, {})
        below = root or _on_host(host, flags.get("root-dir")) or host / KUBELET_ROOT
        fixed = host / KUBELET_ROOT / "device-plugins"
        plugins = below / "device-plugins"
        return cls(
            host=host,
            root=below,
            # Real kubelets always have it there; mock kubelets have it in their own directory.
            plugin_dir=plugin_dir or (fixed if root is None else plugins),
            config=config or _on_host(host, flags.get("config")) or below / "config.yaml",
            config_dir=_on_host(host, flags.get("config-dir")),
            pid=pid,
            flags=flags,
        )

    @property
    def pod_resources(self) -> Path:
        """PodResources socket."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def registry(self) -> Path:
        """Directory of sockets for the plugin watcher."""
        return self.root / "plugins_registry"

    @property
    def pods(self) -> Path:
        """Directory with a subdirectory per pod, named by its UID."""
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        """Directory with a subdirectory per pod, named by namespace, name and UID."""
        return self.host / "var/log/pods"


def _running(host: Path) -> tuple[int, dict[str, str]] | None:
    try:
        return running_kubelet(host / "proc")
    except OSError:
        return None


def _on_host(host: Path, path: str | None) -> Path | None:
    """Return the path to open from here for a path on the node."""
    return host / path.lstrip("/") if path else None
