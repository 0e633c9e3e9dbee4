"""Where the things of a node are, on this machine or where its file system is mounted."""

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
    """Paths as they are to be opened from here."""

    host: Path
    """The root of the machine's file system."""
    root: Path
    """The kubelet's directory."""
    plugin_dir: Path
    config: Path | None
    """The kubelet's configuration file; None: there is no telling."""
    config_dir: Path | None = None
    pid: int | None = None
    """The running kubelet."""
    flags: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def find(
        cls,
        host: Path = Path("/"),
        root: Path | None = None,
        plugin_dir: Path | None = None,
        config: Path | None = None,
    ) -> Places:
        """The places of the kubelet that runs on ``host``, or of one whose directory is
        ``root``: what runs beside that is another's then, and is not looked at."""
        pid, flags = (_running(host) if root is None else None) or (None, {})
        below = root or _there(host, flags.get("root-dir")) or host / KUBELET_ROOT
        fixed = host / KUBELET_ROOT / "device-plugins"
        plugins = below / "device-plugins"
        return cls(
            host=host,
            root=below,
            # Kubelets have it there whatever their root directory; ours have it below.
            plugin_dir=plugin_dir or (fixed if root is None else plugins),
            config=config or _there(host, flags.get("config")) or below / "config.yaml",
            config_dir=_there(host, flags.get("config-dir")),
            pid=pid,
            flags=flags,
        )

    @property
    def pod_resources(self) -> Path:
        """The PodResources socket."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def registry(self) -> Path:
        """Where plugins wait for the plugin watcher."""
        return self.root / "plugins_registry"

    @property
    def pods(self) -> Path:
        """A directory for each pod, named by its UID."""
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        """A directory for each pod, with namespace, name and UID in its name."""
        return self.host / "var/log/pods"


def _running(host: Path) -> tuple[int, dict[str, str]] | None:
    try:
        return running_kubelet(host / "proc")
    except OSError:
        return None


def _there(host: Path, path: str | None) -> Path | None:
    """A path of the node's, as it is seen from here."""
    return host / path.lstrip("/") if path else None
