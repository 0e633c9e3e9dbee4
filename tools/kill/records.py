"""What a kubelet that was killed had answered, and whether its checkpoint says the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import attrs

import checkpoint
from tools.kill.claims import BrokenState, held_on_disk

Devices = dict[str, list[str]]


class Broken(Exception):
    """The kubelet did not keep its word. The text is one line."""


@attrs.define
class CrashRecord:
    """Follows the reports of one life after the other."""

    held: dict[str, Devices] = attrs.field(factory=dict)
    """Pods whose admission was answered and whose termination has not begun."""
    ending: dict[str, Devices] = attrs.field(factory=dict)
    """Pods whose termination has begun and was not answered: on disk or not."""
    answered: int = 0
    kept: int = 0
    is_ready: bool = False
    _ended: set[str] = attrs.field(factory=set)

    def begin(self) -> dict[str, dict[str, int]]:
        """A new life begins; returns the pods it has to know, and what they want."""
        self.ending.clear()
        self._ended.clear()
        self.is_ready = False
        return {
            uid: {resource: len(ids) for resource, ids in devices.items()}
            for uid, devices in self.held.items()
        }

    def take(self, line: bytes) -> None:
        """One report. Raises Broken for a pod that came back with other devices."""
        match json.loads(line):
            case ["ready"]:
                self.is_ready = True
            case ["kept", uid, devices]:
                self.kept += 1
                if devices != self.held[uid]:
                    raise Broken(f"pod {uid} held {self.held[uid]}, after the restart {devices}")
            case ["held", uid, devices]:
                self.answered += 1
                self.held[uid] = devices
            case ["ending", uid]:
                self.ending[uid] = self.held.pop(uid)
            case ["ended", uid]:
                del self.ending[uid]
                self._ended.add(uid)
            case unknown:
                raise Broken(f"an unknown report: {unknown}")

    def compare(self, path: Path, claims: Path) -> None:
        """Raises Broken unless checkpoint and claims' state load and have what was answered."""
        try:
            entries = checkpoint.load(path).entries or ()
        except checkpoint.CheckpointNotFound:
            entries = ()  # nothing was answered yet, or the next check fails
        except checkpoint.CheckpointError as error:
            raise Broken(str(error)) from error
        on_disk = _by_pod(entries)
        _check_holders(on_disk)
        try:
            for uid, held in held_on_disk(claims).items():
                on_disk[uid] = on_disk.get(uid, {}) | held
        except BrokenState as error:
            raise Broken(str(error)) from error
        for uid, devices in self.held.items():
            if on_disk.get(uid) != devices:
                raise Broken(f"pod {uid} was told {devices}, on disk it has {on_disk.get(uid)}")
        if back := self._ended & on_disk.keys():
            raise Broken(f"pod {min(back)} was terminated and is still on disk")


def _by_pod(entries: Iterable[checkpoint.PodDevicesEntry]) -> dict[str, Devices]:
    pods: dict[str, Devices] = {}
    for entry in entries:
        ids = {id_ for ids in (entry.device_ids or {}).values() for id_ in ids or ()}
        pods.setdefault(entry.pod_uid, {})[entry.resource_name] = sorted(ids)
    return pods


def _check_holders(pods: dict[str, Devices]) -> None:
    holders: dict[tuple[str, str], str] = {}
    for uid, devices in pods.items():
        for resource, ids in devices.items():
            for id_ in ids:
                other = holders.setdefault((resource, id_), uid)
                if other != uid:
                    raise Broken(f"{resource} {id_} has two holders, {other} and {uid}")
