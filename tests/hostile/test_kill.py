"""A kubelet killed under load loses nothing: a short version of ``python -m tools.kill``.

| fault | test |
|---|---|
| SIGKILL at random moments under load | test_six_kills_lose_nothing |
| the check itself: lost, changed, duplicate and resurrected pods | test_record_reports_lost_and_duplicate_allocations |
"""  # noqa: E501

from __future__ import annotations

import json
from pathlib import Path

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from checkpoint.dra import STATE_NAME, ClaimState, Device, DriverState, State, dumps
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.core.model import AccessMode, Allocation, Grant
from devicemanager.claims.state_file import ClaimRecord, ClaimsState, StateWriter
from devicemanager.claims.v1alpha1.objects import DeviceClaim
from devicemanager.claims.v1alpha1.reading import read_object
from devicemanager.core.quantity import parse_quantity
from tools.harness.model import Broken
from tools.kill import claims
from tools.kill.__main__ import CrashRecord, main, run

R = "example.com/gpu"


def test_six_kills_lose_nothing() -> None:
    record = run(6, seed=7)
    # The numbers depend on the machine.
    assert record.answered
    assert record.with_dra
    assert record.readmitted


def test_kill_reports_a_kubelet_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.kill.__main__.RESOURCES", ("example.com/gpu", "other.com/nic"))
    monkeypatch.setattr("tools.kill.__main__._TIMEOUT", 2.0)
    monkeypatch.setattr("tools.kill.__main__._AT_START", 0.0)
    assert main(["--times", "1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("kill: FAILED: seed 1, ")
    assert out.endswith(": kubelet 0: the kubelet was not ready before the timeout\n")


def entry(uid: str, *ids: str) -> PodDevicesEntry:
    return PodDevicesEntry(uid, "main", R, {-1: ids}, b"")


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([entry("a", "d0", "d1"), entry("c", "d3")], ""),
        ([entry("a", "d0", "d1"), entry("b", "d2")], ""),
        ([entry("c", "d3")], "pod a was allocated"),
        ([entry("a", "d0")], "pod a was allocated"),
        ([entry("a", "d0", "d1"), entry("ended", "d4")], "was terminated, but is on disk"),
        ([entry("a", "d0", "d1"), entry("c", "d1")], "d1 is allocated to a and to c"),
        (None, "the path is wrong|was allocated"),
        ("garbage", "start without a checkpoint"),
    ],
)
def test_record_reports_lost_and_duplicate_allocations(
    tmp_path: Path, entries: list[PodDevicesEntry] | str | None, complaint: str
) -> None:
    record = CrashRecord()
    reports: list[list[object]] = [
        ["ready"],
        ["allocated", "a", {R: ["d0", "d1"]}],
        ["allocated", "b", {R: ["d2"]}],
        ["ending", "b"],
        ["allocated", "ended", {R: ["d4"]}],
        ["ending", "ended"],
        ["ended", "ended"],
    ]
    for report in reports:
        record.take(json.dumps(report).encode())
    path = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    path.parent.mkdir()
    if isinstance(entries, str):
        path.write_text(entries)
    elif entries is not None:
        path.write_bytes(checkpoint.dumps(Checkpoint(tuple(entries), {})))
    if complaint:
        with pytest.raises(Broken, match=complaint):
            record.compare(tmp_path, ())
    else:
        record.compare(tmp_path, ())
    record.begin()
    with pytest.raises(Broken, match="pod a had"):
        record.take(json.dumps(["readmitted", "a", {R: ["d0"]}]).encode())


def claim_record(name: str, device: str, *users: str) -> ClaimRecord:
    found = read_object(claims.claim(f"{claims.PREFIX}{name}", 1))
    assert isinstance(found, DeviceClaim)
    key = DeviceKey(claims.DRIVER, claims.POOL, device)
    mode, amounts = AccessMode.EXCLUSIVE, {}
    if device.startswith("shared"):
        mode, amounts = AccessMode.SHARED, {"memory": parse_quantity("40Gi")}
    grant = Grant(key, 0, 0, "claims[0]", mode, amounts)
    return ClaimRecord(found, Allocation(found.id, (grant,)), dict.fromkeys(users, "pod"))


def state(*records: ClaimRecord) -> bytes:
    devices = {grant.device for record in records for grant in record.allocation.grants}
    return StateWriter().render(ClaimsState(records, {key: {} for key in devices}))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (state(claim_record("w", "d0", "a", "b")), ""),
        (state(claim_record("w", "d0", "a"), claim_record("m", "shared-0", "c")), ""),
        (None, "pod a was allocated"),
        (state(claim_record("w", "d1", "a")), "pod a was allocated"),
        (state(claim_record("w", "d0", "b")), "pod a was allocated"),
        (state(claim_record("w", "d0", "a", "ended")), "pod ended was terminated, but is on"),
        (state(claim_record("w", "d0", "a"), claim_record("v", "d0")), "is already allocated"),
        (
            state(claim_record("w", "d0", "a"), *(claim_record(n, "shared-0") for n in "mn")),
            "shared-0 exceed its memory",
        ),
        (b"garbage", "not a state file"),
    ],
    ids=range(9),
)
def test_record_reports_lost_and_duplicate_claims(
    tmp_path: Path, data: bytes | None, complaint: str
) -> None:
    record = CrashRecord()
    reports: list[list[object]] = [
        ["allocated", "a", {"claim:w": ["d0"]}],
        ["allocated", "ended", {"claim:w": ["d0"]}],
        ["ending", "ended"],
        ["ended", "ended"],
    ]
    for report in reports:
        record.take(json.dumps(report).encode())
    path = tmp_path / "device_claims_state"
    if data is not None:
        path.write_bytes(data)
    if complaint:
        with pytest.raises(Broken, match=complaint):
            record.compare(tmp_path, ())
    else:
        record.compare(tmp_path, ())


def dra_state(**claims: tuple[str, *tuple[str, ...]]) -> bytes:
    """Return a state file; each claim has a device and pods."""
    return dumps(State(tuple(_claim_state(name, *each) for name, each in claims.items())))


def _claim_state(name: str, device: str, *pods: str) -> ClaimState:
    drivers = {"d": DriverState((Device("p", device),))}
    return ClaimState("default", name, name, frozenset(pods), drivers)


@pytest.mark.parametrize(
    ("data", "prepared", "complaint"),
    [
        (dra_state(c=("d0", "a", "b")), "c", ""),
        (dra_state(c=("d0", "a"), e=("d1", "f")), "ce", ""),
        (None, "", "pod a was allocated"),
        (dra_state(c=("d1", "a")), "c", "pod a was allocated"),
        (dra_state(c=("d0", "b")), "c", "pod a was allocated"),
        (dra_state(c=("d0", "a", "ended")), "c", "pod ended was terminated, but is on disk"),
        (dra_state(c=("d0", "a"), e=("d0", "f")), "ce", "d/p/d0 is prepared for claims"),
        (dra_state(c=("d0", "a")), "ce", "claim e is prepared in the driver, but dra_manager"),
        (b"garbage", "", "not JSON"),
    ],
    ids=range(9),
)
def test_record_reports_lost_and_duplicate_resource_claims(
    tmp_path: Path, data: bytes | None, prepared: str, complaint: str
) -> None:
    record = CrashRecord()
    for report in [
        ["allocated", "a", {"dra:c": ["d0"]}],
        ["allocated", "ended", {"dra:c": ["d0"]}],
        ["ending", "ended"],
        ["ended", "ended"],
    ]:
        record.take(json.dumps(report).encode())
    if data is not None:
        (tmp_path / STATE_NAME).write_bytes(data)
    if complaint:
        with pytest.raises(Broken, match=complaint):
            record.compare(tmp_path, prepared)
    else:
        record.compare(tmp_path, prepared)
