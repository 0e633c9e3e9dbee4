"""ResourceClaims of the pods that a killed kubelet runs: their objects, and the kubelet's file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import checkpoint.dra
from checkpoint.dra import ClaimLike
from devicemanager.kubelet.mock import MockKubelet
from tools.harness.model import Broken, Devices, devices

PREFIX: Final = "dra:"
"""Prefix of a ResourceClaim's name in mappings of devices by resource."""
DRIVER: Final = "dra.example.com"
_PER_THREAD: Final = 6
_THREADS: Final = 4
NUMBER_DEVICES: Final = _PER_THREAD * _THREADS + 1
COMMON: Final = f"{PREFIX}dra-{NUMBER_DEVICES - 1}.common"
"""Name of a ResourceClaim that many pods share."""


def want(kubelet: MockKubelet, thread: int, uid: str) -> str | None:
    """Return a ResourceClaim for a pod, with a free device; None if the thread has none.

    A scheduler does not allocate a device again before its last claim was unprepared.
    """
    stored = checkpoint.dra.loads(kubelet.dra_state_path.read_bytes()).claims or ()
    used = {_device(claim.name) for claim in stored}
    mine = (f"dra-{thread * _PER_THREAD + number}" for number in range(_PER_THREAD))
    free = next((each for each in mine if each not in used), None)
    return None if free is None else f"{PREFIX}{free}.{uid}"


def _device(claim: str) -> str:
    """Return the device of a ResourceClaim, which is a part of its name."""
    return claim.partition(".")[0]


def claim(name: str) -> dict[str, Any]:
    """Return a ResourceClaim that is allocated."""
    result = {"driver": DRIVER, "pool": "mock", "device": _device(name), "request": "r"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def prepared(kubelet: MockKubelet, uid: str) -> dict[str, list[str]]:
    """Return the devices of the ResourceClaims that the kubelet holds for a pod."""
    manager = kubelet._life.serving().dra.if_used
    return {
        f"{PREFIX}{claim.name}": _devices(claim)
        for claim in (() if manager is None else manager.held(uid))
    }


def _devices(claim: ClaimLike) -> list[str]:
    return [each.device for state in claim.drivers.values() for each in state.devices or ()]


def dra_on_disk(root: Path, in_driver: Collection[str]) -> dict[str, Devices]:
    """Return the devices of each pod's ResourceClaims in the state file.

    Raises Broken if the file does not load, if a device is prepared for two claims, or if the
    driver has prepared a claim that is not in the file. ``in_driver`` are the UIDs of the claims
    that the driver has prepared.
    """
    path = root / checkpoint.dra.STATE_NAME
    if not path.exists():
        return {}
    try:
        claims = checkpoint.dra.loads(path.read_bytes()).claims or ()
    except checkpoint.CheckpointError as error:
        raise Broken(str(error)) from error
    for finding in checkpoint.dra.inconsistencies(claims):
        raise Broken(finding.text)
    if lost := set(in_driver) - {each.uid for each in claims}:
        raise Broken(f"claim {min(lost)} is prepared in the driver, but {path.name} lacks it")
    found: dict[str, Devices] = {}
    for each in claims:
        granted = devices({f"{PREFIX}{each.name}": _devices(each)})
        for uid in each.pods:
            found[uid] = found.get(uid, frozenset()) | granted
    return found
