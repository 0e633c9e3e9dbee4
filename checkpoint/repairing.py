"""Repair a rejected file so that a kubelet loads it.

Unreadable parts are left out and listed; nothing is invented. If a text was altered but is
still readable, the change cannot be detected, and the new checksum makes it valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import attrs

from checkpoint.decode import shown
from checkpoint.errors import CheckpointCorrupt
from checkpoint.inspection import inspect
from checkpoint.model import Checkpoint, PodDevicesEntry, RegisteredDevices
from checkpoint.parse import loads
from checkpoint.text import dumps

CONVERTED: Final = (
    "the file had the format of kubelets before v1.20, without NUMA nodes: all devices are on "
    "node 0 now, as kubelets from v1.22 to v1.30 do it"
)
ALTERED: Final = (
    "the whole file could be read, so it is unknown what was altered: check devices and pods, "
    "the new checksum makes them valid"
)
UNREGISTERED: Final = (
    "the registered resources are lost: each returns when its plugin registers again"
)
_REPLACED: Final = "\ufffd"


@attrs.frozen
class Repair:
    """A file that a kubelet loads, and what was changed."""

    data: bytes
    """The contents of the file; unchanged if no repair was needed."""
    checkpoint: Checkpoint
    """The same contents, parsed."""
    problems: tuple[str, ...] = ()
    """Why a kubelet would reject the original file, one line each."""
    dropped: tuple[str, ...] = ()
    """One line for each entry or resource that is left out."""
    notes: tuple[str, ...] = ()
    """Advice, one line each."""

    @property
    def changed(self) -> bool:
        """True if a repair was needed."""
        return bool(self.problems or self.dropped)


def repair(data: bytes) -> Repair:
    """Keep what can be read of ``data`` and recompute the checksum. Does not raise.

    Entries that a later one replaces are left out, as in a kubelet that reads both.
    """
    found = inspect(data)
    # Three kinds of rejected files: one in the format of old kubelets, one whose contents are
    # complete but do not match the checksum, and a damaged one.
    saved, lost, notes = found.checkpoint, found.lost, _notes(found.checkpoint, found.is_complete)
    if found.problems and (first := _first_format(data)) is not None:
        saved, lost, notes = first, (), (CONVERTED,)
    elif found.problems and found.is_complete:
        notes = (ALTERED,)
    dropped = list(lost)
    kept = _kept(saved, found.is_text, dropped)
    if not found.problems and not dropped:
        return Repair(data, saved)
    return Repair(dumps(kept), kept, found.problems, tuple(dropped), notes)


def without_pods(checkpoint: Checkpoint, uids: Collection[str]) -> Checkpoint:
    """Return the checkpoint without the entries of these pods."""
    entries = tuple(each for each in checkpoint.entries or () if each.pod_uid not in uids)
    # The kubelet writes null if there are no entries.
    return attrs.evolve(checkpoint, entries=entries or None)


def _first_format(data: bytes) -> Checkpoint | None:
    """Parse a valid file of a kubelet before v1.20; None if it is something else."""
    try:
        return loads(data, v1=True)
    except CheckpointCorrupt:
        return None


def _notes(saved: Checkpoint, is_complete: bool) -> tuple[str, ...]:
    is_lost = bool(saved.entries) and not saved.registered_devices and not is_complete
    return (UNREGISTERED,) if is_lost else ()


def _kept(saved: Checkpoint, is_text: bool, dropped: list[str]) -> Checkpoint:
    """Return the part of ``saved`` to keep; add a line to ``dropped`` for each other part."""
    last = {_holder(entry): entry for entry in saved.entries or ()}
    entries = []
    for entry in saved.entries or ():
        if not is_text and _REPLACED in _texts(entry):
            dropped.append(f"the entry of {_title(entry)}: it is not UTF-8")
        elif last[_holder(entry)] is not entry:
            dropped.append(f"the entry of {_title(entry)}: a later entry replaces it")
        else:
            entries.append(entry)
    registered = saved.registered_devices
    if registered is not None and not is_text:
        registered = dict(_readable(registered, dropped))
    return Checkpoint(None if saved.entries is None else tuple(entries), registered)


def _readable(
    registered: RegisteredDevices, dropped: list[str]
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    for name, ids in registered.items():
        if _REPLACED in "".join((name, *(ids or ()))):
            dropped.append(f"resource {shown(name)}: it is not UTF-8")
        else:
            yield name, ids


def _holder(entry: PodDevicesEntry) -> tuple[str, str, str]:
    return entry.pod_uid, entry.container_name, entry.resource_name


def _title(entry: PodDevicesEntry) -> str:
    pod, container, resource = map(shown, _holder(entry))
    return f"pod {pod}, container {container}, resource {resource}"


def _texts(entry: PodDevicesEntry) -> str:
    ids = (id_ for each in (entry.device_ids or {}).values() for id_ in each or ())
    return "".join((*_holder(entry), *ids))
