"""The claims of the pods in a kill run: what they ask for, and what the state file says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from devicemanager.claims.core.ledger import Ledger, LedgerError
from devicemanager.claims.core.model import AccessMode
from devicemanager.claims.state_file import ClaimsState, StateCorrupt, parse_state
from devicemanager.claims.v1alpha1.objects import API_VERSION
from devicemanager.core.quantity import parse_quantity

PREFIX = "claim:"
"""What a pod wants of a claim stands among its devices, under this and the claim's name."""
COMMON = f"{PREFIX}common"
"""The claim that many pods share."""
DRIVER, POOL = "claims.example.com", "cards"
_WHOLE, _SHARED, _MEMORY = 24, 4, 64


class BrokenState(Exception):
    """The state file is not as it must be. The text is one line."""


def objects() -> list[dict[str, Any]]:
    """A pool with devices for one claim each and devices for many, and their classes."""
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
    """The claim of a want: ``claim:w-...`` for whole devices, ``claim:m-...`` for a share."""
    name = want.removeprefix(PREFIX)
    if name.startswith("m-"):
        # From its name, so that it is the same in the next life.
        memory = 1 + sum(name.encode()) % 24
        detail = {"deviceClass": "shared", "requests": {"memory": f"{memory}Gi"}}
    else:
        detail = {"deviceClass": "whole", "requests": {"count": count}}
    return _object("DeviceClaim", name, {"claims": [detail]})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def held_on_disk(path: Path) -> dict[str, dict[str, list[str]]]:
    """By pod and want, the devices that the state file gives it. Raises BrokenState unless the
    file loads, no device has two holders and no share is too large."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        state = parse_state(data)
        Ledger.restore(state.ledger())
    except (StateCorrupt, LedgerError) as error:
        raise BrokenState(f"{path.name}: {error}") from error
    _check_shares(state)
    held: dict[str, dict[str, list[str]]] = {}
    for record in state.records:
        want = f"{PREFIX}{record.claim.metadata.name}"
        devices = sorted(grant.device.name for grant in record.allocation.grants)
        for uid in record.users:
            held.setdefault(uid, {})[want] = devices
    return held


def _check_shares(state: ClaimsState) -> None:
    given: Counter[str] = Counter()
    for record in state.records:
        for grant in record.allocation.grants:
            if grant.mode is AccessMode.SHARED:
                given[grant.device.name] += grant.amounts["memory"]
    most = parse_quantity(f"{_MEMORY}Gi")
    for name, amount in given.items():
        if amount > most:
            raise BrokenState(f"{name} has given more memory than it has")
