"""Contents of the state file ``device_claims_state``: allocated claims that survive a restart.

In:  ``ClaimsState``: the allocated claims with their pods and prepared devices, and each device's
     charge (the amounts of its pool's resources that the device consumes). Not stored: pools,
     classes and pending claims, which are objects of the API.
Out: JSON with a version and a CRC-32 of its data. ``parse_state`` converts the JSON back to the
     state, or raises StateCorrupt.
"""

# The kubelet, too, stores claims in a separate file, next to the device manager's checkpoint
# (``dra_manager_state``, pkg/kubelet/cm/dra/state, v1.32).

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.model import AccessMode, Allocation, Grant, LedgerState
from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.v1alpha1.objects import DeviceClaim
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.claims.v1alpha1.writing import write_object

VERSION = "v1"

Plain = dict[str, Any]

_MALFORMED = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that parsing a document of another shape can raise."""


class StateCorrupt(ClaimsError):
    """Error for a text that is not a valid, complete state file."""


@attrs.frozen
class ClaimRecord:
    """Entry of the state file: an allocated claim, its pods and its prepared devices."""

    claim: DeviceClaim
    allocation: Allocation
    users: Mapping[str, str] = attrs.field(factory=dict)
    """Names of the pods that use the claim, by UID."""
    is_deleted: bool = False
    """True if the claim is removed as soon as no pod uses it."""
    prepared: Mapping[DeviceKey, tuple[str, ...]] = attrs.field(factory=dict)
    """CDI names of the prepared devices, by device."""


@attrs.frozen
class ClaimsState:
    """State of all allocated claims, as stored in the state file."""

    records: tuple[ClaimRecord, ...] = ()
    charges: Mapping[DeviceKey, Mapping[str, int]] = attrs.field(factory=dict)

    def ledger(self) -> LedgerState:
        """Return the allocations and the pool resources in use, for ``Ledger.restore``."""
        allocations = tuple([record.allocation for record in self.records])
        return LedgerState(allocations, self.charges)


class StateWriter:
    """Renderer of the state file, which caches the text of each ``ClaimRecord`` object."""

    def __init__(self) -> None:
        self._rendered: dict[str, tuple[ClaimRecord, str]] = {}

    def render(self, state: ClaimsState) -> bytes:
        """Return the text of the state file for a state, in UTF-8."""
        # Every admission writes the file, and one pod changes only a few of many records.
        before, self._rendered = self._rendered, {}
        for record in state.records:
            found = before.get(record.claim.id)
            if found is None or found[0] is not record:
                found = (record, _dumps(_record(record)))
            self._rendered[record.claim.id] = found
        claims = ",".join(text for _, text in self._rendered.values())
        # The same text as ``_dumps`` of the parsed data: ``parse_state`` computes the checksum from
        # it.
        data = f'{{"charges":{_dumps(_charges(state.charges))},"claims":[{claims}]}}'
        return with_checksum(data.encode())


def with_checksum(data: bytes) -> bytes:
    """Return the text of a state file: ``data`` (JSON), with the format version and the checksum of
    ``data``."""
    return b'{"version":"%s","data":%s,"checksum":%d}' % (VERSION.encode(), data, zlib.crc32(data))


def parse_state(data: bytes) -> ClaimsState:
    """Convert the text of a state file back to the state.

    Raises StateCorrupt for an invalid text.
    """
    try:
        text = data.decode()
        document = json.loads(text)
        version = document["version"]
        if version != VERSION:
            raise StateCorrupt(f"unsupported version {version!r}: expected {VERSION!r}")
        # The data is rendered again, so the checksum does not depend on white space.
        if zlib.crc32(_dumps(document["data"]).encode()) != document["checksum"]:
            raise StateCorrupt("wrong checksum: the state file is damaged")
        return _state(document["data"])
    except StateCorrupt:
        raise
    except InvalidObject as error:
        raise StateCorrupt(f"invalid claim: {error}") from error
    except _MALFORMED as error:
        raise StateCorrupt(
            "not a state file of structured claims: expected JSON with the keys version, data"
            " and checksum"
        ) from error


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _record(record: ClaimRecord) -> Plain:
    return {
        "claim": write_object(record.claim),
        "grants": [_grant(grant) for grant in record.allocation.grants],
        "users": dict(sorted(record.users.items())),
        "deleted": record.is_deleted,
        "prepared": [
            {"device": list(key), "cdi": list(ids)} for key, ids in sorted(record.prepared.items())
        ],
    }


def _grant(grant: Grant) -> Plain:
    return {
        "device": list(grant.device),
        "request": grant.request,
        "alternative": grant.alternative,
        "label": grant.label,
        "mode": grant.mode.value,
        # As text: many JSON readers round large numbers.
        "nanos": {name: str(amount) for name, amount in sorted(grant.amounts.items())},
    }


def _charges(charges: Mapping[DeviceKey, Mapping[str, int]]) -> list[Plain]:
    return [
        {"device": list(key), "nanos": {name: str(n) for name, n in sorted(charge.items())}}
        for key, charge in sorted(charges.items())
    ]


def _state(data: Mapping[str, Any]) -> ClaimsState:
    records = tuple([_read_record(each) for each in data["claims"]])
    charges = {_key(each["device"]): _nanos(each["nanos"]) for each in data["charges"]}
    return ClaimsState(records, charges)


def _read_record(found: Mapping[str, Any]) -> ClaimRecord:
    claim = read_object(found["claim"])
    if not isinstance(claim, DeviceClaim):
        raise StateCorrupt(f"an entry is a {type(claim).__name__}: expected a DeviceClaim")
    grants = tuple([_read_grant(each) for each in found["grants"]])
    users = {str(uid): str(name) for uid, name in found["users"].items()}
    prepared = {_key(each["device"]): tuple(map(str, each["cdi"])) for each in found["prepared"]}
    allocation = Allocation(claim.id, grants)
    return ClaimRecord(claim, allocation, users, bool(found["deleted"]), prepared)


def _read_grant(found: Mapping[str, Any]) -> Grant:
    return Grant(
        _key(found["device"]),
        int(found["request"]),
        int(found["alternative"]),
        str(found["label"]),
        AccessMode(found["mode"]),
        _nanos(found["nanos"]),
    )


def _key(parts: Iterable[str]) -> DeviceKey:
    driver, pool, name = map(str, parts)
    return DeviceKey(driver, pool, name)


def _nanos(amounts: Mapping[str, str]) -> dict[str, int]:
    return {str(name): int(amount) for name, amount in amounts.items()}
