"""The files of a snapshot archive (docs/snapshot.md), and how large they may be.

The version changes when a reader of the one before would misunderstand a file. Files and
fields that are only added change nothing: readers leave out what they do not know.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "devicemanager.snapshot/v1"
DIRECTORY: Final = "snapshot"
"""The directory in which all files of the archive are."""

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
"""Bytes of the largest file. A checkpoint of a node with a thousand pods has half a megabyte."""
MAX_UNPACKED: Final = 128 << 20
"""Bytes of all files together, and of what is between them."""
MAX_PACKED: Final = 64 << 20
MAX_MEMBERS: Final = 64
