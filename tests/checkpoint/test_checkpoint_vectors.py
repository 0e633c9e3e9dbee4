"""Recorded checkpoints are replayed, and the replay detects wrong results."""

import json
from pathlib import Path

import pytest

from tests.paths import VECTOR_SETS
from tools.replay.checkpoint import replay_file

OWN = Path(__file__).parent / "data" / "checkpoint.jsonl"


def test_cases_beside_this_test_agree():
    outcomes = list(replay_file(OWN))
    assert len(outcomes) == 12
    assert [outcome for outcome in outcomes if outcome.differences] == []


@pytest.mark.parametrize("vectors", VECTOR_SETS)
def test_recorded_checkpoints_agree(vectors):
    outcomes = list(replay_file(vectors / "checkpoint.jsonl"))
    assert len(outcomes) > 20
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
def test_replay_detects_an_altered_vector(tmp_path, field, change, named):
    vector = next(
        v for v in map(json.loads, OWN.read_text().splitlines()) if v["id"] == "one device"
    )
    vector[field] = change(vector[field])
    path = tmp_path / "altered.jsonl"
    path.write_text(json.dumps(vector))
    (outcome,) = replay_file(path)
    assert named <= {text.split(":")[0] for text in outcome.differences}
