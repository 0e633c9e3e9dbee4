"""Constants of the device plugin API, v1beta1 (``constants.go`` of k8s.io/kubelet)."""

from __future__ import annotations

from typing import Final

VERSION: Final = "v1beta1"
"""The only version of the device plugin API that a kubelet accepts."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

MAX_NUMA_NODES: Final = 1024
"""Largest number of NUMA nodes that Linux supports (``NODES_SHIFT`` in mm/Kconfig is at most
10). Node IDs are below this number."""

PLUGIN_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""The directory in which a kubelet listens for registrations. It is fixed: the kubelet's flag
``--root-dir`` does not change it."""

CHECKPOINT_FILE: Final = "kubelet_internal_checkpoint"
"""File name of the kubelet's checkpoint in the plugin directory."""

KUBELET_SOCKET: Final = "kubelet.sock"
"""File name of the Registration service's socket in the plugin directory."""

PLUGINS_REGISTRY_DIRECTORY: Final = "/var/lib/kubelet/plugins_registry"
"""The directory in which the kubelet's plugin watcher discovers sockets."""

DEVICE_PLUGIN: Final = "DevicePlugin"
"""The plugin type that device plugins report to the plugin watcher (``PluginInfo.type``)."""
