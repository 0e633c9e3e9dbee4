"""Recorded files: those that came with the specification, and our own beside this test."""

import json
from pathlib import Path

import pytest

from tests.paths import VECTORS
from tools.replay.checkpoint import replay_file

OWN = Path(__file__).parent / "data" / "checkpoint.jsonl"
RECORDED = VECTORS / "checkpoint.jsonl"


def test_own_cases_agree():
    outcomes = list(replay_file(OWN))
    assert len(outcomes) == 12
    assert [outcome for outcome in outcomes if outcome.differences] == []


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded vectors are not on this machine")
def test_recorded_vectors_agree():
    outcomes = list(replay_file(RECORDED))
    assert outcomes
    assert [outcome for outcome in outcomes if outcome.differences] == []


@pytest.mark.parametrize(
    ("field", "change", "named"),
    [
        ("file", lambda v: v.replace('"gpu-0"', '"gpu-7"'), {"dumps", "loads", "document"}),
        ("checksum", lambda v: v + 1, {"checksum"}),
        ("hashed_text", lambda v: v + "}", {"hashed text"}),
        ("registered_devices", lambda v: {}, {"dumps", "checksum", "hashed text", "loads"}),
        ("entries", lambda v: None, {"dumps", "checksum", "hashed text", "loads", "document"}),
    ],
)
def test_replay_sees_an_altered_vector(tmp_path, field, change, named):
    vector = next(
        v for v in map(json.loads, OWN.read_text().splitlines()) if v["id"] == "one device"
    )
    vector[field] = change(vector[field])
    path = tmp_path / "altered.jsonl"
    path.write_text(json.dumps(vector))
    (outcome,) = replay_file(path)
    assert named <= {text.split(":")[0] for text in outcome.differences}
