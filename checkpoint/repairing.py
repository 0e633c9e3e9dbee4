"""A file that a kubelet loads, from one that it would reject.

What cannot be read is left out and named. Nothing is made up: where a text was altered and is
still a text, nobody can tell, and the new checksum vouches for it.
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

__all__ = ["Repair", "repair", "without_pods"]

CONVERTED: Final = (
    "it had the format of kubelets before v1.20, without NUMA nodes: all devices stand on node 0 "
    "now, where kubelets from v1.22 to v1.30 put them"
)
ALTERED: Final = (
    "all of it could be read, so what was altered is not known: the new checksum vouches for "
    "devices and pods that nobody has checked"
)
UNREGISTERED: Final = (
    "its registered resources are lost: each is there again once its plugin has registered"
)
_REPLACED: Final = "\ufffd"


@attrs.frozen
class Repair:
    """A file that a kubelet loads, and what became of the one before."""

    data: bytes
    """The file's contents; those that were given if there was nothing to do."""
    checkpoint: Checkpoint
    """The same, read."""
    problems: tuple[str, ...] = ()
    """Why a kubelet would have rejected the file, a line each."""
    dropped: tuple[str, ...] = ()
    """Each entry and resource that is left out: what it was, or why."""
    notes: tuple[str, ...] = ()
    """What else there is to know, a line each."""

    @property
    def changed(self) -> bool:
        """Whether there was something to do."""
        return bool(self.problems or self.dropped)


def repair(data: bytes) -> Repair:
    """Keep what can be read of ``data`` and compute the checksum anew. Raises nothing.

    An entry that a later one replaces is left out as well, as a kubelet does that reads both.
    """
    found = inspect(data)
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
    """A checkpoint in which these pods hold nothing."""
    entries = tuple(each for each in checkpoint.entries or () if each.pod_uid not in uids)
    # A kubelet has null for no entries.
    return attrs.evolve(checkpoint, entries=entries or None)


def _first_format(data: bytes) -> Checkpoint | None:
    """A whole file of a kubelet before v1.20; None if it is something else."""
    try:
        return loads(data, v1=True)
    except CheckpointCorrupt:
        return None


def _notes(saved: Checkpoint, is_complete: bool) -> tuple[str, ...]:
    is_lost = bool(saved.entries) and not saved.registered_devices and not is_complete
    return (UNREGISTERED,) if is_lost else ()


def _kept(saved: Checkpoint, is_text: bool, dropped: list[str]) -> Checkpoint:
    """What stays of ``saved``; each thing that does not is added to ``dropped``."""
    last = {_holder(entry): entry for entry in saved.entries or ()}
    entries = []
    for entry in saved.entries or ():
        if not is_text and _REPLACED in _texts(entry):
            dropped.append(f"the entry of {_title(entry)}: some of its bytes are no text")
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
            dropped.append(f"resource {shown(name)}: some of its bytes are no text")
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
