"""Names of the files in a snapshot archive (docs/snapshot.md), and limits of their sizes.

The version in ``SCHEMA`` changes only if an older reader would misinterpret a file. New files and
fields do not change it, because readers ignore files and fields that they do not know.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "devicemanager.snapshot/v1"
DIRECTORY: Final = "snapshot"
"""Directory in the archive that contains all files."""

INDEX: Final = "snapshot.json"
POD_RESOURCES: Final = "pod-resources.json"
ALLOCATABLE: Final = "allocatable.json"
CHECKPOINT: Final = "kubelet_internal_checkpoint"
CPU_STATE: Final = "cpu_manager_state"
MEMORY_STATE: Final = "memory_manager_state"
DRA_STATE: Final = "dra_manager_state"
DRA_HEALTH: Final = "dra_health_state"
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
    DRA_STATE,
    DRA_HEALTH,
    SOCKETS,
    NUMA,
    CONFIG,
    PODS,
)

MAX_FILE: Final = 64 << 20
"""Largest size of one file, in bytes. The checkpoint of a node with 1,000 pods has half a
megabyte."""
MAX_UNPACKED: Final = 128 << 20
"""Largest size of the decompressed tar archive, in bytes."""
MAX_PACKED: Final = 64 << 20
MAX_MEMBERS: Final = 64
