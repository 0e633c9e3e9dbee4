"""Model of the allocations that a kubelet has confirmed, and of what must therefore be on disk.

The calls that have returned so far determine the state of a pod:

1. *allocated*: the admission has returned, and no termination has begun. The pod has exactly the
   devices that the admission returned, in memory and on disk.
2. *ending*: a termination has begun and not returned. The pod may or may not be on disk.
3. *ended*: the termination has returned. The pod is not on disk, and must not appear there again.

A device is a text ``RESOURCE ID``, so that one set can have devices of several resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from checkpoint import Checkpoint

Devices: TypeAlias = frozenset[str]


class Broken(Exception):
    """Error for a broken promise. The message is one line."""


def devices(by_resource: Mapping[str, Iterable[str]]) -> Devices:
    """Return the devices of all resources as one set of texts ``RESOURCE ID``."""
    return frozenset(f"{resource} {id_}" for resource, ids in by_resource.items() for id_ in ids)


def devices_on_disk(saved: Checkpoint) -> dict[str, Devices]:
    """Return the devices of each pod in a checkpoint, by pod UID.

    Raises Broken if a device is in two entries. This includes entries of one pod, because no pod of
    these tools reuses devices.
    """
    # Compare entries, not pods, to find a device in two entries of one pod.
    holders: dict[str, str] = {}
    for entry in saved.entries or ():
        for ids in (entry.device_ids or {}).values():
            for id_ in ids or ():
                _add(holders, f"{entry.resource_name} {id_}", entry.pod_uid)
    pods: dict[str, set[str]] = {}
    for device, uid in holders.items():
        pods.setdefault(uid, set()).add(device)
    return {uid: frozenset(each) for uid, each in pods.items()}


def check_disjoint(pods: Mapping[str, Devices]) -> None:
    """Raise Broken if a device is allocated to two pods."""
    holders: dict[str, str] = {}
    for uid, each in pods.items():
        for device in each:
            _add(holders, device, uid)


def _add(holders: dict[str, str], device: str, uid: str) -> None:
    if device in holders:
        raise Broken(f"{device} is allocated to {holders[device]} and to {uid}")
    holders[device] = uid


def check_same(source: str, found: Mapping[str, Devices], expected: Mapping[str, Devices]) -> None:
    """Raise Broken if the devices that ``source`` shows for each pod differ from the expected
    devices."""
    uids = found.keys() | expected.keys()
    if wrong := sorted(uid for uid in uids if found.get(uid) != expected.get(uid)):
        uid = wrong[0]
        raise Broken(
            f"{source} shows wrong devices for {len(wrong)} pods, the first is {uid}: "
            f"{sorted(found.get(uid, ()))}, expected {sorted(expected.get(uid, ()))}"
        )


@attrs.define
class Confirmed:
    """State of each pod according to the calls that have returned."""

    allocated: dict[str, Devices] = attrs.field(factory=dict)
    ending: dict[str, Devices] = attrs.field(factory=dict)
    ended: set[str] = attrs.field(factory=set)

    def add(self, what: str, uid: str, devices: Devices = frozenset()) -> None:
        """Record that a pod is now ``allocated``, ``ending`` or ``ended``."""
        match what:
            case "allocated":
                self.allocated[uid] = devices
            case "ending":
                self.ending[uid] = self.allocated.pop(uid)
            case "ended":
                del self.ending[uid]
                self.ended.add(uid)
            case _:
                raise Broken(
                    f"unknown state {what!r} of pod {uid}: expected allocated, ending or ended"
                )

    def problems(self, on_disk: Mapping[str, Devices]) -> Iterator[str]:
        """Yield a text for each pod whose devices on disk contradict its state."""
        for uid, expected in self.allocated.items():
            if (found := on_disk.get(uid)) != expected:
                has = "none" if found is None else sorted(found)
                yield f"pod {uid} was allocated {sorted(expected)}, on disk it has {has}"
        # Pods in the state *ending* are not checked: they may or may not be on disk.
        if back := self.ended & on_disk.keys():
            yield f"pod {min(back)} was terminated, but is on disk"
