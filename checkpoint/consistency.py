"""What no kubelet would have written, in a file that it would read without a word."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, KeysView

import attrs

from checkpoint.model import Checkpoint, PodDevicesEntry

__all__ = ["Finding", "FindingKind", "inconsistencies"]


class FindingKind(enum.StrEnum):
    """What is inconsistent."""

    HELD_TWICE = "held-twice"
    """Two pods hold one device. Two containers of one pod may: a device of an init container
    that has ended goes to the next container."""
    REPEATED_ENTRY = "repeated-entry"
    """A container has more than one entry for a resource; the last one counts."""
    UNREGISTERED_RESOURCE = "unregistered-resource"
    """A container holds devices of a resource that has no plugin."""


@attrs.frozen
class Finding:
    """One inconsistency; ``message`` is a line for people."""

    kind: FindingKind
    message: str
    resource: str
    pods: tuple[str, ...]
    """The UIDs of the pods concerned, in the file's order."""


def inconsistencies(checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """All findings, by kind, in the file's order."""
    entries = checkpoint.entries or ()
    registered = checkpoint.registered_devices or {}
    return (*_held_twice(entries), *_repeated(entries), *_unregistered(entries, registered.keys()))


def _held_twice(entries: tuple[PodDevicesEntry, ...]) -> Iterator[Finding]:
    holders: dict[tuple[str, str], dict[str, None]] = {}
    for entry in entries:
        for ids in (entry.device_ids or {}).values():
            for id_ in ids or ():
                holders.setdefault((entry.resource_name, id_), {})[entry.pod_uid] = None
    for (resource, id_), pods in holders.items():
        if len(pods) > 1:
            text = f"device {id_} of {resource} is held by {len(pods)} pods: {', '.join(pods)}"
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
        text = f"{resource} is not registered, but held by: {', '.join(pods)}"
        yield Finding(FindingKind.UNREGISTERED_RESOURCE, text, resource, tuple(pods))
