"""Claims of the pods of a killed kubelet: their objects, and their state file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from devicemanager.claims.core.ledger import Ledger, LedgerError
from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.state_file import ClaimsState, StateCorrupt, parse_state
from devicemanager.claims.v1alpha1.objects import API_VERSION
from devicemanager.core.quantity import parse_quantity
from tools.harness.model import Broken, Devices, devices

PREFIX = "claim:"
"""Prefix of a claim's name in mappings of devices by resource. In these, a claim has its own key
beside those of resources."""
COMMON = f"{PREFIX}common"
"""Name of a claim that many pods share."""
DRIVER, POOL = "claims.example.com", "cards"
_WHOLE, _SHARED, _MEMORY = 24, 4, 64


def objects() -> list[dict[str, Any]]:
    """Return the objects of a pool with exclusive and shared devices, and of their classes."""
    whole = [{"name": f"whole-{number:02d}", **_attribute(0)} for number in range(_WHOLE)]
    memory = {"name": "memory", "capacity": f"{_MEMORY}Gi", "blockSize": "1Gi"}
    shared = [
        {"name": f"shared-{number}", "resources": [memory], **_attribute(1)}
        for number in range(_SHARED)
    ]
    pool = {"driver": DRIVER, "devices": [*whole, *shared]}
    return [_object("DevicePool", POOL, pool), *map(_class, ("whole", "shared"))]


def _attribute(shared: int) -> dict[str, Any]:
    return {"attributes": [{"name": "shared", "intValue": shared}]}


def _class(name: str) -> dict[str, Any]:
    constraint = f"device.shared == {int(name == 'shared')}"
    spec = {"driver": DRIVER, "deviceType": "card", "constraints": constraint}
    return _object("DeviceClass", name, spec)


def claim(want: str, count: int) -> dict[str, Any]:
    """Return a claim object. The key ``want`` is ``claim:w-...`` for exclusive devices, or
    ``claim:m-...`` for shared memory."""
    name = want.removeprefix(PREFIX)
    if name.startswith("m-"):
        # Derived from the name, so that the next kubelet creates the same claim.
        memory = 1 + sum(name.encode()) % 24
        detail = {"deviceClass": "shared", "requests": {"memory": f"{memory}Gi"}}
    else:
        detail = {"deviceClass": "whole", "requests": {"count": count}}
    return _object("DeviceClaim", name, {"claims": [detail]})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def claims_on_disk(path: Path) -> dict[str, Devices]:
    """Return the devices of each pod's claims in the state file.

    Raises Broken if the file does not load, if an exclusive device is allocated twice, or if the
    shares of a device exceed its memory.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        state = parse_state(data)
        # The ledger rejects a state in which two claims have an exclusive device.
        Ledger.restore(state.ledger())
    except (StateCorrupt, LedgerError) as error:
        raise Broken(f"{path.name}: {error}") from error
    _check_shares(state)
    found: dict[str, Devices] = {}
    for record in state.records:
        name = f"{PREFIX}{record.claim.metadata.name}"
        granted = devices({name: [grant.device.name for grant in record.allocation.grants]})
        for uid in record.users:
            found[uid] = found.get(uid, frozenset()) | granted
    return found


def _check_shares(state: ClaimsState) -> None:
    given: Counter[str] = Counter()
    for record in state.records:
        for grant in record.allocation.grants:
            if grant.mode is AccessMode.SHARED:
                given[grant.device.name] += grant.amounts["memory"]
    most = parse_quantity(f"{_MEMORY}Gi")
    for name, amount in given.items():
        if amount > most:
            raise Broken(f"the shares of device {name} exceed its memory")
