"""Recognize the contents of ``dra_manager_state``, even if they are damaged."""

from __future__ import annotations

import re
from typing import Final

from checkpoint.dra.store import STATE_NAME

# Both files of a kubelet have ``Data`` and ``Checksum``. Only in this file, ``Data`` is a string.
_OURS: Final = re.compile(
    rb'"Data"\s*:\s*(?:"|null)|ClaimInfoStateList|DRACheckpoint|ClaimUID|"version"\s*:\s*"v1"',
    re.IGNORECASE,
)
_OTHERS: Final = re.compile(
    rb'"Data"\s*:\s*\{|"PodDeviceEntries"|"RegisteredDevices"|"PodUID"\s*:', re.IGNORECASE
)
_EMPTY: Final = re.compile(rb"\s*\{\s*\}\s*")


def is_state_file(data: bytes, name: str = "") -> bool:
    """True if ``data`` is a state file of the DRA manager, of any version and perhaps damaged.

    State files and checkpoints of the device manager have different keys. The first key in
    ``data`` that belongs to one of these formats decides. If ``data`` has no such key, the file's
    name ``name`` decides. ``{}`` is a state file, unless ``name`` is the name of a checkpoint.
    """
    ours, others = _OURS.search(data), _OTHERS.search(data)
    # A device or claim can be named like a key of the other format, so the first key decides.
    if ours is not None and others is not None:
        return ours.start() < others.start()
    if ours is not None or others is not None:
        return ours is not None
    is_named = name.rpartition("/")[2].startswith(STATE_NAME)
    # An empty object is a valid file of the DRA manager, but not a valid checkpoint.
    return is_named or (_EMPTY.fullmatch(data) is not None and not _is_checkpoint(name))


def _is_checkpoint(name: str) -> bool:
    from checkpoint.store import CHECKPOINT_NAME

    return name.rpartition("/")[2].startswith(CHECKPOINT_NAME)
