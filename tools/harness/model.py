"""What a kubelet has confirmed to its callers, and what must be on disk because of that.

A pod is in one of three states, from the calls that the kubelet has answered so far:

1. *allocated*: the admission was answered, no termination has begun. The pod has exactly the
   devices of the answer, in memory and on disk.
2. *ending*: a termination has begun and was not answered. The pod may be on disk or not.
3. *ended*: the termination was answered. The pod is not on disk, and must not come back.

A device is written as ``RESOURCE ID``, so that one set can have devices of several resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from checkpoint import Checkpoint

Devices: TypeAlias = frozenset[str]


class Broken(Exception):
    """A promise was broken. The message is one line."""


def devices(by_resource: Mapping[str, Iterable[str]]) -> Devices:
    """Return the devices of all resources as one set."""
    return frozenset(f"{resource} {id_}" for resource, ids in by_resource.items() for id_ in ids)


def devices_on_disk(saved: Checkpoint) -> dict[str, Devices]:
    """Return the devices of each pod. Raises Broken if a device is allocated twice, also if both
    allocations are of one pod: no pod of these tools reuses devices."""
    # By entry and not by pod, so that a device in two entries of one pod is noticed.
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
    """Raise Broken if a source disagrees with what was confirmed."""
    uids = found.keys() | expected.keys()
    if wrong := sorted(uid for uid in uids if found.get(uid) != expected.get(uid)):
        uid = wrong[0]
        raise Broken(
            f"{source} is wrong for {len(wrong)} pods, the first is {uid}: "
            f"{sorted(found.get(uid, ()))}, allocated {sorted(expected.get(uid, ()))}"
        )


@attrs.define
class Confirmed:
    """The state of each pod as its caller knows it."""

    allocated: dict[str, Devices] = attrs.field(factory=dict)
    ending: dict[str, Devices] = attrs.field(factory=dict)
    ended: set[str] = attrs.field(factory=set)

    def add(self, what: str, uid: str, devices: Devices = frozenset()) -> None:
        """Add what the kubelet has confirmed: ``allocated``, ``ending`` or ``ended``."""
        match what:
            case "allocated":
                self.allocated[uid] = devices
            case "ending":
                self.ending[uid] = self.allocated.pop(uid)
            case "ended":
                del self.ending[uid]
                self.ended.add(uid)
            case _:
                raise Broken(f"unknown report {what!r} of pod {uid}")

    def problems(self, on_disk: Mapping[str, Devices]) -> Iterator[str]:
        """Yield each pod whose devices on disk contradict what was confirmed."""
        for uid, expected in self.allocated.items():
            if (found := on_disk.get(uid)) != expected:
                has = "none" if found is None else sorted(found)
                yield f"pod {uid} was allocated {sorted(expected)}, on disk it has {has}"
        # Pods that are ending are not checked: either state is correct for them.
        if back := self.ended & on_disk.keys():
            yield f"pod {min(back)} was terminated and is on disk"
