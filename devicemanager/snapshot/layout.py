"""Files of a snapshot archive (docs/snapshot.md), and limits of their size.

The version changes only if an older reader would misinterpret a file. New files and fields do not
change it: readers ignore what they do not know.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "devicemanager.snapshot/v1"
DIRECTORY: Final = "snapshot"
"""Directory of all files in the archive."""

INDEX: Final = "snapshot.json"
POD_RESOURCES: Final = "pod-resources.json"
ALLOCATABLE: Final = "allocatable.json"
CHECKPOINT: Final = "kubelet_internal_checkpoint"
CPU_STATE: Final = "cpu_manager_state"
MEMORY_STATE: Final = "memory_manager_state"
SOCKETS: Final = "sockets.json"
NUMA: Final = "numa.json"
CONFIG: Final = "kubelet-config.json"
PODS: Final = "pods.json"

FILES: Final = (
    INDEX,
    POD_RESOURCES,
    ALLOCATABLE,
    CHECKPOINT,
    CPU_STATE,
    MEMORY_STATE,
    SOCKETS,
    NUMA,
    CONFIG,
    PODS,
)

MAX_FILE: Final = 64 << 20
"""Bytes of one file. The checkpoint of a node with 1,000 pods has half a megabyte."""
MAX_UNPACKED: Final = 128 << 20
"""Bytes of the whole tar archive."""
MAX_PACKED: Final = 64 << 20
MAX_MEMBERS: Final = 64
