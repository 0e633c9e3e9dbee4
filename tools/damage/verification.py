"""Verify the findings of a snapshot with plain loops over devices, independently of the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import checkpoint
from checkpoint import CheckpointCorrupt, dra
from devicemanager.snapshot.model import Listening, Snapshot
from devicemanager.snapshot.rules import Finding, Kind
from podresources import Allocatable

_Key = tuple[str, str]


def false_findings(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a text for each finding that is not true for the snapshot."""
    facts = _Facts(snapshot)
    for finding in findings:
        if not facts.confirm(finding):
            yield f"false: {finding.kind}: {finding.message}"


def missed_problems(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a text for each certain problem that has no finding."""
    facts = _Facts(snapshot)
    # Search only for certain problems. The rules may also report uncertain ones.
    found = {(each.kind, each.resource, *each.devices) for each in findings}
    for key, names in facts.allocated_to.items():
        if len(names) > 1 and (Kind.HELD_TWICE, *key) not in found:
            yield f"two pods have {key}: {sorted(names)}"
    kinds = [each.kind for each in findings]
    if facts.is_rejected and Kind.CHECKPOINT_DAMAGED not in kinds:
        yield "a kubelet would reject the checkpoint"
    dead = sum(each.state is Listening.DEAD for each in facts.plugins)
    if kinds.count(Kind.DEAD_SOCKET) != dead:
        yield f"{dead} sockets are stale"


class _Facts:
    """Facts about devices and pods in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        data = snapshot.checkpoint
        self.saved = checkpoint.inspect(data or b"").checkpoint
        self.is_rejected = data is not None and _is_rejected(data)
        self.claims = dra.inspect(snapshot.dra_state or b"{}").state.claims or ()
        self.plugins = [
            each for each in snapshot.sockets or () if not each.path.endswith("/kubelet.sock")
        ]
        self.allocated_to: dict[_Key, set[str]] = {}
        for pod in snapshot.pods or ():
            for container in pod.containers:
                for devices in container.devices:
                    for id_ in devices.device_ids:
                        key = (devices.resource_name, id_)
                        self.allocated_to.setdefault(key, set()).add(f"{pod.namespace}/{pod.name}")
        self.saved_for: dict[_Key, set[str]] = {}
        for entry in self.saved.entries or ():
            for ids in (entry.device_ids or {}).values():
                for id_ in ids or ():
                    self.saved_for.setdefault((entry.resource_name, id_), set()).add(entry.pod_uid)
        self.allocatable = {
            (devices.resource_name, id_)
            for devices in (snapshot.allocatable or Allocatable()).devices
            for id_ in devices.device_ids
        }

    def confirm(self, finding: Finding) -> bool:
        """True if the finding is true for the snapshot."""
        keys = [(str(finding.resource), id_) for id_ in finding.devices]
        registered = self.saved.registered_devices or {}
        # State files are not verified, because that would need a second implementation of their
        # checks.
        match finding.kind:
            case Kind.CHECKPOINT_DAMAGED:
                return self.is_rejected
            case Kind.HELD_TWICE:
                (key,) = keys
                sources = self.allocated_to.get(key, set()), self.saved_for.get(key, set())
                return len(finding.pods) > 1 and any(set(finding.pods) <= each for each in sources)
            case Kind.NOT_IN_CHECKPOINT:
                return all(key in self.allocated_to and key not in self.saved_for for key in keys)
            case Kind.ONLY_IN_CHECKPOINT:
                # The device may be allocated to other pods, but not to the pod in the message.
                return all(
                    finding.pods[0] in self.saved_for.get(key, ())
                    and not any(f"{n} (" in finding.message for n in self.allocated_to.get(key, ()))
                    for key in keys
                )
            case Kind.RESOURCE_WITHOUT_PLUGIN:
                resources = {resource for resource, _ in self.allocatable}
                return self.snapshot.allocatable is not None and finding.resource not in resources
            case Kind.DEVICES_NOT_OFFERED:
                return all(
                    key not in self.allocatable and key[1] in (registered.get(key[0]) or ())
                    for key in keys
                )
            case Kind.HELD_NOT_OFFERED:
                return all(key in self.allocated_to and key not in self.allocatable for key in keys)
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
                    entry.pod_uid in finding.pods and not _is_response(entry.alloc_resp or b"")
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
            case Kind.DRA_STATE_DAMAGED:
                return dra.kubelet_error(self.snapshot.dra_state or b"{}") is not None
            case Kind.PREPARED_TWICE:
                return any(
                    len({each.uid for each in self._claims_with(device)}) > 1
                    and set(finding.pods)
                    >= {uid for each in self._claims_with(device) for uid in each.pods}
                    for device in self._claim_devices()
                )
            case Kind.CLAIM_POD_GONE:
                (uid,) = finding.pods
                directories = self.snapshot.directories
                uids = None if directories is None else directories.uids
                held = any(uid in each.pods for each in self.claims)
                return held and uids is not None and uid not in uids
            case Kind.CLAIM_WITHOUT_PODS:
                return any(not each.pods and each.name in finding.message for each in self.claims)
            case Kind.REPEATED_CLAIM:
                names = [(each.namespace, each.name) for each in self.claims]
                return len(names) > len(set(names))
            case Kind.REPEATED_CLAIM_DEVICE:
                return any(
                    len(devices) > len(set(devices)) for devices in map(_devices_of, self.claims)
                )
        return False

    def _claim_devices(self) -> set[tuple[str, ...]]:
        return {device[:3] for each in self.claims for device in _devices_of(each)}

    def _claims_with(self, device: tuple[str, ...]) -> list[dra.ClaimState]:
        return [each for each in self.claims if device in [held[:3] for held in _devices_of(each)]]

    def _is_gone(self, uid: str) -> bool:
        directories = self.snapshot.directories
        # Only a pod that had devices can be reported as gone.
        mine = {key for key, uids in self.saved_for.items() if uid in uids}
        if not mine:
            return False
        if directories is not None and directories.uids is not None:
            return uid not in directories.uids
        return self.snapshot.pods is not None and not mine & self.allocated_to.keys()


def _devices_of(claim: dra.ClaimState) -> list[tuple[str, ...]]:
    return [
        (driver, device.pool, device.device, device.share_id or "")
        for driver, state in claim.drivers.items()
        for device in state.devices or ()
    ]


def _is_rejected(data: bytes) -> bool:
    try:
        checkpoint.loads(data)
    except CheckpointCorrupt:
        return True
    return False


def _is_response(data: bytes) -> bool:
    from google.protobuf.message import DecodeError

    from protos import deviceplugin_v1beta1 as dp

    try:
        dp.ContainerAllocateResponse.FromString(data)
    except DecodeError:
        return False
    return True
