"""Repair a checkpoint file that kubelets reject, so that a kubelet loads it.

Unreadable parts are left out of the repaired file, and reported. Nothing is invented. If a part was
altered but is still readable, this cannot be detected. The repaired file then contains the altered
part, with a valid checksum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
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
    "node 0 now, as in kubelets from v1.22 to v1.30 that read such a file"
)
ALTERED: Final = (
    "the whole file could be read, so it is unknown what was altered: check its devices and pods, "
    "because the new checksum makes all of them valid"
)
UNREGISTERED: Final = (
    "the registered resources are lost: each returns when its plugin registers again; "
    "until then, `verify` reports resources with devices as not registered"
)
_REPLACED: Final = "\ufffd"


@attrs.frozen
class Repair:
    """Repaired contents of a checkpoint file, and a description of what was changed."""

    data: bytes
    """Contents of the repaired file, which a kubelet loads; the original contents if no repair was
    needed."""
    checkpoint: Checkpoint
    """The entries and resources in ``data``."""
    problems: tuple[str, ...] = ()
    """Reasons for which a kubelet would reject the original file, one line each."""
    dropped: tuple[str, ...] = ()
    """One line for each entry or resource that the repaired file does not contain."""
    notes: tuple[str, ...] = ()
    """Advice about the repaired file, one line each."""

    @property
    def changed(self) -> bool:
        """True if ``data`` differs from the original file."""
        return bool(self.problems or self.dropped)


def repair(data: bytes) -> Repair:
    """Return the repaired form of the checkpoint file ``data``: its readable contents with a new
    checksum. Raises nothing.

    If two entries have the same pod, container and resource, only the later one is kept. A kubelet
    also uses the later one.
    """
    found = inspect(data)
    # A rejected file is of one of three kinds: it has the format of old kubelets; or its contents
    # are complete but do not match the checksum; or it is damaged.
    saved, lost, notes = found.checkpoint, found.lost, _notes(found.checkpoint, found.is_complete)
    if found.problems and (first := _first_format(data)) is not None:
        saved, lost, notes = first, (), (CONVERTED,)
    elif found.problems and found.is_complete:
        notes = (ALTERED,)
    dropped = list(lost)
    kept = _kept(saved, data if not found.is_text else None, dropped)
    if not found.problems and not dropped:
        return Repair(data, saved)
    return Repair(dumps(kept), kept, found.problems, tuple(dropped), notes)


def without_pods(checkpoint: Checkpoint, uids: Collection[str]) -> Checkpoint:
    """Return the checkpoint without the entries of the pods with these UIDs."""
    entries = tuple(each for each in checkpoint.entries or () if each.pod_uid not in uids)
    # The kubelet writes null if there are no entries.
    return attrs.evolve(checkpoint, entries=entries or None)


def _first_format(data: bytes) -> Checkpoint | None:
    """Parse a valid file of a kubelet before v1.20. Return None for any other contents."""
    try:
        return loads(data, v1=True)
    except CheckpointCorrupt:
        return None


def _notes(saved: Checkpoint, is_complete: bool) -> tuple[str, ...]:
    is_lost = bool(saved.entries) and not saved.registered_devices and not is_complete
    return (UNREGISTERED,) if is_lost else ()


def _kept(saved: Checkpoint, noise: bytes | None, dropped: list[str]) -> Checkpoint:
    """Return the part of ``saved`` to keep, and add one line to ``dropped`` for each part that is
    left out.

    ``noise`` is the contents of a file that is not UTF-8, and None for any other file.
    """
    last = {_holder(entry): entry for entry in saved.entries or ()}
    entries = []
    for entry in saved.entries or ():
        if noise is not None and _is_damaged(_texts(entry), noise):
            dropped.append(f"the entry of {_title(entry)}: its text is not UTF-8")
        elif last[_holder(entry)] is not entry:
            dropped.append(f"the entry of {_title(entry)}: a later entry replaces it")
        else:
            entries.append(entry)
    registered = saved.registered_devices
    if registered is not None and noise is not None:
        registered = dict(_readable(registered, noise, dropped))
    return Checkpoint(None if saved.entries is None else tuple(entries), registered)


def _readable(
    registered: RegisteredDevices, noise: bytes, dropped: list[str]
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    for name, ids in registered.items():
        if _is_damaged((name, *(ids or ())), noise):
            dropped.append(f"resource {shown(name)}: its text is not UTF-8")
        else:
            yield name, ids


def _holder(entry: PodDevicesEntry) -> tuple[str, str, str]:
    return entry.pod_uid, entry.container_name, entry.resource_name


def _title(entry: PodDevicesEntry) -> str:
    pod, container, resource = map(shown, _holder(entry))
    return f"pod {pod}, container {container}, resource {resource}"


def _is_damaged(texts: Iterable[str], noise: bytes) -> bool:
    """True if one of the texts contains U+FFFD in place of bytes that are not UTF-8."""
    # The original file can contain U+FFFD as a regular character. Then its bytes contain the text.
    return any(_REPLACED in text and text.encode() not in noise for text in texts)


def _texts(entry: PodDevicesEntry) -> tuple[str, ...]:
    ids = (id_ for each in (entry.device_ids or {}).values() for id_ in each or ())
    return *_holder(entry), *ids
