"""Constants of the device plugin API, v1beta1 (``constants.go`` of k8s.io/kubelet)."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DEVICE_PLUGIN",
    "HEALTHY",
    "KUBELET_SOCKET",
    "MAX_NUMA_NODES",
    "PLUGINS_REGISTRY_DIRECTORY",
    "PLUGIN_DIRECTORY",
    "UNHEALTHY",
    "VERSION",
]

VERSION: Final = "v1beta1"
"""The only version that a kubelet takes."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

MAX_NUMA_NODES: Final = 1024
"""Node ids are below it: no Linux has more (``NODES_SHIFT``, mm/Kconfig, is 10 at most)."""

PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""Where a kubelet listens for registrations, whatever its root directory."""

CHECKPOINT_FILE: Final = "kubelet_internal_checkpoint"
"""The kubelet's checkpoint in the plugin directory."""

KUBELET_SOCKET: Final = "kubelet.sock"
"""The Registration service's file name in the plugin directory."""

PLUGINS_REGISTRY_DIRECTORY: Final = "/var/lib/kubelet/plugins_registry"
"""Where a kubelet's plugin watcher looks for sockets."""

DEVICE_PLUGIN: Final = "DevicePlugin"
"""The type by which a plugin calls itself to the plugin watcher."""
