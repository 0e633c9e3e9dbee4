"""The kubelet's file ``kubelet_internal_checkpoint``: model, exact text, checksum and storage.

The package is independent of the rest: ``checkpoint.load(path)`` reads the file of any kubelet
since v1.20. It does not know protobuf (a plugin's response is opaque bytes) or ``devicemanager``,
and so not what an entry means for pods and devices.

In:   entries and registered devices (``Checkpoint``), or the bytes of a file.
Out:  the bytes that a kubelet would write, durably on disk; the contents of a file, or as much
      of a damaged one as can be read.

Invariants:

* Files are equal to the kubelet's, byte for byte, and each can read the other's.
* A reader finds the old or the new contents, never a mixture (``store``).
* When a write returns, every change made before the call is on disk, as durably as chosen
  (``shared_writer``, ``files``).
* The cost of a write is that of the change, not of the file (``document``, ``fnv``).

Where to start reading: ``model`` and ``text`` for the format; ``parse`` and ``inspection`` for
reading; ``document``, ``shared_writer`` and ``store`` for writing. ``repairing`` makes a damaged
file loadable again.
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

# Loaded at first use, to keep start-up fast: a node without a checkpoint does not need the
# parser, and no kubelet needs inspection and repair.
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
