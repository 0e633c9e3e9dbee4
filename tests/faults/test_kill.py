"""A kubelet killed under load keeps its word: the same as ``python -m tools.kill``, shorter.

| fault | test |
|---|---|
| SIGKILL at random moments under load | test_ten_kills |
| the check itself: lost, changed, doubled, resurrected pods | test_what_is_not_kept_is_noticed |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from tools.kill.__main__ import main, run
from tools.kill.records import Broken, CrashRecord

R = "example.com/gpu"


def test_ten_kills() -> None:
    record = run(10, seed=7)
    assert record.answered > 10
    assert record.kept > 10


def test_a_kubelet_that_does_not_start_is_an_answer_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.kill.__main__.RESOURCES", ("example.com/gpu", "other.com/nic"))
    monkeypatch.setattr("tools.kill.__main__._PATIENCE", 2.0)
    monkeypatch.setattr("tools.kill.__main__._AT_START", 0.0)
    assert main(["--times", "1"]) == 1
    assert capsys.readouterr().out == "broken, seed 1: life 0: the kubelet was not ready in time\n"


def entry(uid: str, *ids: str) -> PodDevicesEntry:
    return PodDevicesEntry(uid, "main", R, {-1: ids}, b"")


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([entry("a", "d0", "d1"), entry("c", "d3")], ""),
        ([entry("a", "d0", "d1"), entry("b", "d2")], ""),
        ([entry("c", "d3")], "pod a was told"),
        ([entry("a", "d0")], "pod a was told"),
        ([entry("a", "d0", "d1"), entry("ended", "d4")], "is still on disk"),
        ([entry("a", "d0", "d1"), entry("c", "d1")], "d1 has two holders, a and c"),
        (None, "the path is wrong|was told"),
        ("garbage", "start afresh"),
    ],
)
def test_what_is_not_kept_is_noticed(
    tmp_path: Path, entries: list[PodDevicesEntry] | str | None, complaint: str
) -> None:
    record = CrashRecord()
    reports: list[list[object]] = [
        ["ready"],
        ["held", "a", {R: ["d0", "d1"]}],
        ["held", "b", {R: ["d2"]}],
        ["ending", "b"],
        ["held", "ended", {R: ["d4"]}],
        ["ending", "ended"],
        ["ended", "ended"],
    ]
    for report in reports:
        record.take(json.dumps(report).encode())
    path = tmp_path / "kubelet_internal_checkpoint"
    if isinstance(entries, str):
        path.write_text(entries)
    elif entries is not None:
        path.write_bytes(checkpoint.dumps(Checkpoint(tuple(entries), {})))
    if complaint:
        with pytest.raises(Broken, match=complaint):
            record.compare(path)
    else:
        record.compare(path)
    record.begin()
    with pytest.raises(Broken, match="pod a held"):
        record.take(json.dumps(["kept", "a", {R: ["d0"]}]).encode())
