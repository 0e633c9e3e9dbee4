"""Whether a report is so: everything is counted afresh, device by device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import checkpoint
from checkpoint import CheckpointCorrupt
from devicemanager.snapshot.model import Listening, Snapshot
from devicemanager.snapshot.rules import Finding, Kind
from podresources import Allocatable

__all__ = ["overlooked", "untrue"]

_Key = tuple[str, str]


def untrue(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[str]:
    """Each finding that the snapshot does not bear out."""
    facts = _Facts(snapshot)
    for finding in findings:
        if not facts.bear_out(finding):
            yield f"not so: {finding.kind}: {finding.message}"


def overlooked(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[str]:
    """What is wrong for certain, and is no finding."""
    facts = _Facts(snapshot)
    found = {(each.kind, each.resource, *each.devices) for each in findings}
    for key, names in facts.holders.items():
        if len(names) > 1 and (Kind.HELD_TWICE, *key) not in found:
            yield f"two pods hold {key}: {sorted(names)}"
    kinds = [each.kind for each in findings]
    if facts.is_rejected and Kind.CHECKPOINT_DAMAGED not in kinds:
        yield "a kubelet would reject the checkpoint"
    dead = sum(each.state is Listening.DEAD for each in facts.plugins)
    if kinds.count(Kind.DEAD_SOCKET) != dead:
        yield f"{dead} sockets are dead"


class _Facts:
    """What a snapshot holds, put together in the plainest way."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        data = snapshot.checkpoint
        self.saved = checkpoint.inspect(data or b"").checkpoint
        self.is_rejected = data is not None and _is_rejected(data)
        self.plugins = [
            each for each in snapshot.sockets or () if not each.path.endswith("/kubelet.sock")
        ]
        self.holders: dict[_Key, set[str]] = {}
        for pod in snapshot.pods or ():
            for container in pod.containers:
                for devices in container.devices:
                    for id_ in devices.device_ids:
                        key = (devices.resource_name, id_)
                        self.holders.setdefault(key, set()).add(f"{pod.namespace}/{pod.name}")
        self.entries: dict[_Key, set[str]] = {}
        for entry in self.saved.entries or ():
            for ids in (entry.device_ids or {}).values():
                for id_ in ids or ():
                    self.entries.setdefault((entry.resource_name, id_), set()).add(entry.pod_uid)
        self.offered = {
            (devices.resource_name, id_)
            for devices in (snapshot.allocatable or Allocatable()).devices
            for id_ in devices.device_ids
        }

    def bear_out(self, finding: Finding) -> bool:
        keys = [(str(finding.resource), id_) for id_ in finding.devices]
        registered = self.saved.registered_devices or {}
        match finding.kind:
            case Kind.CHECKPOINT_DAMAGED:
                return self.is_rejected
            case Kind.HELD_TWICE:
                (key,) = keys
                holders = self.holders.get(key, set()), self.entries.get(key, set())
                return len(finding.pods) > 1 and any(set(finding.pods) <= each for each in holders)
            case Kind.NOT_IN_CHECKPOINT:
                return all(key in self.holders and key not in self.entries for key in keys)
            case Kind.ONLY_IN_CHECKPOINT:
                # Whoever holds them, it is not the pod that is said to.
                return all(
                    finding.pods[0] in self.entries.get(key, ())
                    and not any(f"{n} (" in finding.message for n in self.holders.get(key, ()))
                    for key in keys
                )
            case Kind.RESOURCE_WITHOUT_PLUGIN:
                offers = {resource for resource, _ in self.offered}
                return self.snapshot.allocatable is not None and finding.resource not in offers
            case Kind.DEVICES_NOT_OFFERED:
                return all(
                    key not in self.offered and key[1] in (registered.get(key[0]) or ())
                    for key in keys
                )
            case Kind.HELD_NOT_OFFERED:
                return all(key in self.holders and key not in self.offered for key in keys)
            case Kind.POD_GONE:
                return self._is_gone(*finding.pods)
            case Kind.UNREGISTERED_RESOURCE:
                return finding.resource not in registered
            case Kind.REPEATED_ENTRY:
                (uid,) = finding.pods
                same = [
                    entry.container_name
                    for entry in self.saved.entries or ()
                    if (entry.pod_uid, entry.resource_name) == (uid, finding.resource)
                ]
                return len(same) > len(set(same))
            case Kind.ANSWER_UNREADABLE:
                return any(
                    entry.pod_uid in finding.pods and not _is_answer(entry.alloc_resp or b"")
                    for entry in self.saved.entries or ()
                )
            case Kind.DEAD_SOCKET:
                paths = [each.path for each in self.plugins if each.state is Listening.DEAD]
                return any(finding.message.endswith(path) for path in paths)
            case Kind.REGISTRATION_CLOSED:
                end = "device-plugins/kubelet.sock"
                return not any(
                    each.path.endswith(end) and each.state is not Listening.DEAD
                    for each in self.snapshot.sockets or ()
                )
        return False

    def _is_gone(self, uid: str) -> bool:
        directories = self.snapshot.directories
        mine = {key for key, uids in self.entries.items() if uid in uids}
        if not mine:
            return False
        if directories is not None and directories.uids is not None:
            return uid not in directories.uids
        return self.snapshot.pods is not None and not mine & self.holders.keys()


def _is_rejected(data: bytes) -> bool:
    try:
        checkpoint.loads(data)
    except CheckpointCorrupt:
        return True
    return False


def _is_answer(data: bytes) -> bool:
    from google.protobuf.message import DecodeError

    from protos import deviceplugin_v1beta1 as dp

    try:
        dp.ContainerAllocateResponse.FromString(data)
    except DecodeError:
        return False
    return True
