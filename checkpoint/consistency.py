"""Find inconsistent entries in a checkpoint. A kubelet loads such entries without an error."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, KeysView

import attrs

from checkpoint.model import Checkpoint, PodDevicesEntry


class FindingKind(enum.StrEnum):
    """Kinds of inconsistent checkpoint entries."""

    HELD_TWICE = "held-twice"
    """A device is allocated to several pods. Several containers of one pod may have the same
    device, because app containers reuse devices of init containers."""
    REPEATED_ENTRY = "repeated-entry"
    """A container has several entries for one resource; a kubelet uses the last entry."""
    UNREGISTERED_RESOURCE = "unregistered-resource"
    """A container has devices of a resource that is not registered."""


@attrs.frozen
class Finding:
    """One inconsistency in a checkpoint, with a one-line message."""

    kind: FindingKind
    message: str
    resource: str
    pods: tuple[str, ...]
    """UIDs of the affected pods, in the order of the file."""


def inconsistencies(checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """Return all inconsistencies of a checkpoint: sorted by kind, then in the order of the file."""
    entries = checkpoint.entries or ()
    registered = checkpoint.registered_devices or {}
    return (*_held_twice(entries), *_repeated(entries), *_unregistered(entries, registered.keys()))


def _held_twice(entries: tuple[PodDevicesEntry, ...]) -> Iterator[Finding]:
    # Dicts with None as values serve as sets that keep the order of the file.
    holders: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        for ids in (entry.device_ids or {}).values():
            for id_ in ids or ():
                holders.setdefault((entry.resource_name, id_), {})[entry.pod_uid] = None
    for (resource, id_), pods in holders.items():
        if len(pods) > 1:
            text = f"device {id_} of {resource} is allocated to {len(pods)} pods: {', '.join(pods)}"
            yield Finding(FindingKind.HELD_TWICE, text, resource, tuple(pods))


def _repeated(entries: tuple[PodDevicesEntry, ...]) -> Iterator[Finding]:
    counts = Counter((each.pod_uid, each.container_name, each.resource_name) for each in entries)
    for (pod, container, resource), count in counts.items():
        if count > 1:
            text = f"pod {pod}, container {container} has {count} entries for {resource}"
            yield Finding(FindingKind.REPEATED_ENTRY, text, resource, (pod,))


def _unregistered(
    entries: tuple[PodDevicesEntry, ...], registered: KeysView[str]
) -> Iterator[Finding]:
    holders: dict[str, dict[str, None]] = {}
    for entry in entries:
        if entry.resource_name not in registered:
            holders.setdefault(entry.resource_name, {})[entry.pod_uid] = None
    for resource, pods in holders.items():
        text = f"{resource} is not registered, but allocated to: {', '.join(pods)}"
        yield Finding(FindingKind.UNREGISTERED_RESOURCE, text, resource, tuple(pods))
