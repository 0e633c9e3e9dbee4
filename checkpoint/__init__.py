"""The kubelet's file ``kubelet_internal_checkpoint``: model, exact text, checksum and storage.

The file contains entries and resources. An entry has the devices of one resource that are
allocated to one container. A resource has the IDs of its healthy devices.

``checkpoint.load(path)`` reads the file of any kubelet since v1.20. The package does not import
``devicemanager``. It treats a plugin's protobuf response as opaque bytes, and does not decide which
devices a pod may use.

In:   entries and registered devices (``Checkpoint``), or the bytes of a file.
Out:  the bytes that a kubelet would write, durably on disk; or the contents of a file. From a
      damaged file, the contents that can still be read.

Invariants:

* Files are equal to the kubelet's, byte for byte. A real kubelet reads the files of this
  package, and this package reads the files of a real kubelet.
* A reader finds the old or the new contents, never a mixture (``store``).
* When a write returns, every change made before the call is on disk, with the chosen durability
  (``shared_writer``, ``files``).
* The cost of a write depends on the size of the change, not of the file (``document``, ``fnv``).

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

# Imported at first use, to keep start-up fast. A node without a checkpoint does not need the
# parser. A running kubelet never needs inspection and repair.
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
