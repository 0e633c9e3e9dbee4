"""What each level of durability promises, and whether a recording keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

import checkpoint
from tools.power.disk import Files, Mark, Operation, moments

Holders = dict[str, tuple[str, ...]]
"""Sorted device ids by pod UID."""


class Broken(Exception):
    """A promise was not kept. The text is one line."""


@attrs.define
class Word:
    """What the kubelet has told so far."""

    held: Holders = attrs.field(factory=dict)
    """Pods whose admission was answered and whose termination has not begun."""
    ended: set[str] = attrs.field(factory=set)
    """Pods whose termination was answered."""

    def take(self, mark: Mark) -> None:
        """It has told something more: ``held``, ``ending`` or ``ended``."""
        match mark.what:
            case "held":
                self.held[mark.uid] = mark.devices
            case "ending":
                self.held.pop(mark.uid)
            case "ended":
                self.ended.add(mark.uid)


def check(
    level: str, start: Mapping[str, bytes], operations: Sequence[Operation], word: Word
) -> int:
    """Lose the power at every moment; how many different directories were left.

    Raises Broken for the first that is not as the level promises. At ``process`` it is the
    process alone that ends. ``word`` is what had been told at the start, and is carried on.
    """
    checked: set[tuple[bytes | None, int, int]] = set()
    for moment, disk in enumerate(moments(start, operations)):
        if moment and isinstance(operation := operations[moment - 1], Mark):
            word.take(operation)
        for left in [disk.seen()] if level == "process" else disk.lost():
            key = (left.get(checkpoint.CHECKPOINT_NAME), len(word.held), len(word.ended))
            if key not in checked:
                checked.add(key)
                if problem := next(_broken(level, left, word), None):
                    after = operations[moment - 1] if moment else "the start"
                    raise Broken(f"{level}: power lost after {after!r:.120}: {problem}")
    return len(checked)


def _broken(level: str, left: Files, word: Word) -> Iterator[str]:
    try:
        holders = holders_in(left)
    except checkpoint.CheckpointError as error:
        yield f"the file is not whole: {error}"
        return
    taken = [id_ for ids in holders.values() for id_ in ids]
    if len(taken) != len(set(taken)):
        yield "a device has two holders"
    if level == "kubelet":
        return  # an older file, as long as it is whole
    for uid, devices in word.held.items():
        if holders.get(uid) != devices:
            yield f"pod {uid} was told {devices}, on disk it has {holders.get(uid)}"
    if back := word.ended & holders.keys():
        yield f"pod {min(back)} was terminated and is on disk"


def holders_in(files: Files) -> Holders:
    """Who holds what by the checkpoint; nobody holds anything without one. Raises
    CheckpointError."""
    data = files.get(checkpoint.CHECKPOINT_NAME)
    if data is None:
        return {}
    holders: dict[str, list[str]] = {}
    for entry in checkpoint.loads(data).entries or ():
        for ids in (entry.device_ids or {}).values():
            holders.setdefault(entry.pod_uid, []).extend(ids or ())
    return {uid: tuple(sorted(ids)) for uid, ids in holders.items()}
