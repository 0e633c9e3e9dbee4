"""The promises of each durability level, and a check whether a recording keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

import checkpoint
from tools.power.disk import Files, Mark, Operation, moments

Holders = dict[str, tuple[str, ...]]
"""Sorted device ids by pod UID."""


class Broken(Exception):
    """A promise was not kept. The message is one line."""


@attrs.define
class Confirmed:
    """What the kubelet has confirmed to its callers so far."""

    allocated: Holders = attrs.field(factory=dict)
    """Devices of admitted pods whose termination has not begun."""
    ended: set[str] = attrs.field(factory=set)
    """Pods whose termination has returned."""

    def add(self, mark: Mark) -> None:
        """Add a mark: ``allocated``, ``ending`` or ``ended``."""
        match mark.what:
            case "allocated":
                self.allocated[mark.uid] = mark.devices
            case "ending":
                self.allocated.pop(mark.uid)
            case "ended":
                self.ended.add(mark.uid)


def check(
    level: str, start: Mapping[str, bytes], operations: Sequence[Operation], confirmed: Confirmed
) -> int:
    """Simulate a power failure at every moment; return the number of different outcomes.

    Raises Broken for the first outcome that breaks a promise of the level. At ``process`` only
    the process is killed. ``confirmed`` is the state at the start, and is updated.
    """
    checked: set[tuple[bytes | None, int, int]] = set()
    for moment, disk in enumerate(moments(start, operations)):
        if moment and isinstance(operation := operations[moment - 1], Mark):
            confirmed.add(operation)
        for left in [disk.seen()] if level == "process" else disk.lost():
            file = left.get(checkpoint.CHECKPOINT_NAME)
            key = (file, len(confirmed.allocated), len(confirmed.ended))
            if key not in checked:
                checked.add(key)
                if problem := next(_broken(level, left, confirmed), None):
                    after = operations[moment - 1] if moment else "the start"
                    raise Broken(f"{level}: power lost after {after!r:.120}: {problem}")
    return len(checked)


def _broken(level: str, left: Files, confirmed: Confirmed) -> Iterator[str]:
    try:
        holders = holders_in(left)
    except checkpoint.CheckpointError as error:
        yield f"the file is damaged: {error}"
        return
    in_use = [id_ for ids in holders.values() for id_ in ids]
    if len(in_use) != len(set(in_use)):
        yield "a device is allocated to two pods"
    if level == "kubelet":
        return  # an older file is allowed if it is not damaged
    for uid, devices in confirmed.allocated.items():
        if holders.get(uid) != devices:
            yield f"pod {uid} was allocated {devices}, on disk it has {holders.get(uid)}"
    if left_over := confirmed.ended & holders.keys():
        yield f"pod {min(left_over)} was terminated and is on disk"


def holders_in(files: Files) -> Holders:
    """Return the devices of each pod in the checkpoint; empty without a checkpoint. Raises
    CheckpointError."""
    data = files.get(checkpoint.CHECKPOINT_NAME)
    if data is None:
        return {}
    holders: dict[str, list[str]] = {}
    for entry in checkpoint.loads(data).entries or ():
        for ids in (entry.device_ids or {}).values():
            holders.setdefault(entry.pod_uid, []).extend(ids or ())
    return {uid: tuple(sorted(ids)) for uid, ids in holders.items()}
