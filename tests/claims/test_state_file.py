"""The state file of claims: an exact round trip, and one clear error for anything else."""

import json
import zlib

import pytest
from attrs import evolve

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.model import AccessMode, Allocation, Grant
from devicemanager.claims.state_file import (
    ClaimRecord,
    ClaimsState,
    StateCorrupt,
    StateWriter,
    parse_state,
)
from devicemanager.claims.v1alpha1.objects import ClaimStatus, DeviceAllocation
from tests.claims.documents import claim, read

A, B = DeviceKey("d.example.com", "p", "a"), DeviceKey("d.example.com", "p", "b")


def record(name, *grants, **fields):
    found = read(claim(name))
    devices = tuple(DeviceAllocation(each.device.pool, each.device.name) for each in grants)
    status = ClaimStatus(devices, pod_names=tuple(sorted(fields.get("users", {}).values())))
    return ClaimRecord(evolve(found, status=status), Allocation(found.id, grants), **fields)


STATE = ClaimsState(
    (
        record("x", Grant(A, 0, 1, "claims[0].oneOf[1]", AccessMode.SHARED, {"memory": 10**30})),
        record("y", Grant(B, 0, 0, "claims[0]", AccessMode.EXCLUSIVE), users={"u-1": "pod"},
               is_deleted=True, prepared={B: ("k8s.d/x=common", "k8s.d/x=b")}),
        record("z", Grant(B, 0, 0, "claims[0]", AccessMode.ADMIN), prepared={B: ()}),
    ),
    {A: {"units": 3}, B: {}},
)  # fmt: skip


def test_parse_state_returns_what_was_rendered():
    assert parse_state(StateWriter().render(STATE)) == STATE
    assert parse_state(StateWriter().render(ClaimsState())) == ClaimsState()


def test_reused_writer_renders_the_same_as_a_new_one():
    writer = StateWriter()
    changed = evolve(STATE, records=(STATE.records[0], evolve(STATE.records[1], users={})))
    for state in (STATE, changed, ClaimsState(), STATE):
        assert writer.render(state) == StateWriter().render(state)


def altered(change):
    document = json.loads(StateWriter().render(STATE))
    change(document["data"])
    data = json.dumps(document["data"], separators=(",", ":"))
    document["checksum"] = zlib.crc32(data.encode())
    return json.dumps(document).encode()


def broken_claim(data):
    data["claims"][0]["claim"]["spec"]["claims"] = []


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not a state file"),
        (b"[]", "not a state file"),
        (b"{}", "not a state file"),
        (b"\xff", "not a state file"),
        (b"[" * 100_000, "not a state file"),
        (StateWriter().render(STATE)[:-10], "not a state file"),
        (StateWriter().render(STATE).replace(b'"v1"', b'"v9"'), "unsupported version 'v9'"),
        (StateWriter().render(STATE).replace(b"u-1", b"u-2"), "wrong checksum"),
        (altered(lambda data: data.pop("charges")), "not a state file"),
        (altered(lambda data: data["claims"][0]["grants"][0].pop("mode")), "not a state file"),
        (
            altered(lambda data: data["charges"][0].update(nanos={"x": float("inf")})),
            "not a state file",
        ),
        (altered(broken_claim), "invalid claim"),
    ],
    ids=range(12),
)
def test_parse_state_rejects_other_texts(data, complaint):
    with pytest.raises(StateCorrupt, match="^" + complaint):
        parse_state(data)
