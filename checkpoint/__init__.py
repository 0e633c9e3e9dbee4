"""The kubelet's ``kubelet_internal_checkpoint``: model, exact text, checksum, file store.

Usable alone: ``checkpoint.load(path)`` reads the file of any kubelet since v1.20.

What may never appear here: protobuf (the allocation response is opaque bytes) and anything
of ``devicemanager``, in particular what a checkpoint means for pods and devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.document import Document, Snapshot
from checkpoint.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteError,
    ChecksumMismatch,
)
from checkpoint.files import Contents, Durability, FileOperations
from checkpoint.freeing import Freeing
from checkpoint.model import Checkpoint, DevicesPerNUMA, PodDevicesEntry, RegisteredDevices
from checkpoint.reading import MAX_SIZE, load, read, verify
from checkpoint.store import CHECKPOINT_NAME, FileStore, is_checkpoint_file
from checkpoint.text import Rendered, checksum, dumps, hashed_text, render_entry

if TYPE_CHECKING:
    from checkpoint.consistency import Finding, FindingKind, inconsistencies
    from checkpoint.inspection import Inspection, inspect
    from checkpoint.parse import loads
    from checkpoint.repairing import Repair, repair, without_pods

__all__ = [
    "CHECKPOINT_NAME",
    "MAX_SIZE",
    "Checkpoint",
    "CheckpointCorrupt",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointUnreadable",
    "CheckpointWriteError",
    "ChecksumMismatch",
    "Contents",
    "DevicesPerNUMA",
    "Document",
    "Durability",
    "FileOperations",
    "FileStore",
    "Finding",
    "FindingKind",
    "Freeing",
    "Inspection",
    "PodDevicesEntry",
    "RegisteredDevices",
    "Rendered",
    "Repair",
    "Snapshot",
    "checksum",
    "dumps",
    "hashed_text",
    "inconsistencies",
    "inspect",
    "is_checkpoint_file",
    "load",
    "loads",
    "read",
    "render_entry",
    "repair",
    "verify",
    "without_pods",
]

# What reads a file's text, which a node does not need that starts afresh, and what looks for
# faults in it, which no kubelet needs.
_LAZY = {
    "Finding": "consistency",
    "FindingKind": "consistency",
    "Inspection": "inspection",
    "Repair": "repairing",
    "inconsistencies": "consistency",
    "inspect": "inspection",
    "loads": "parse",
    "repair": "repairing",
    "without_pods": "repairing",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
