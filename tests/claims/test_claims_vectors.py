"""Recorded vectors: those of the specification, and a sample in this repository."""

import copy
from pathlib import Path

import pytest
import yaml

from tests.paths import VECTOR_SETS
from tools.replay.__main__ import main
from tools.replay.claims import replay_file, replay_vectors
from tools.replay.report import ReplayError

SAMPLE = Path(__file__).parent / "data" / "claims.yaml"


def disagreeing(outcomes):
    return [each.id for each in outcomes if each.differences]


def test_sample_agrees(capsys):
    assert main(["claims", str(SAMPLE)]) == 0
    assert capsys.readouterr().out == "20 of 20 agree\n"


@pytest.mark.parametrize("name", ["claims.yaml", "claims-random.yaml"])
@pytest.mark.parametrize("vectors", VECTOR_SETS)
def test_recorded_rows_agree(vectors, name):
    outcomes = list(replay_file(vectors / name))
    assert len(outcomes) > 50
    assert disagreeing(outcomes) == []


def wrong_rows():
    """Yield rows of the sample with one changed expectation: its path and the new value."""
    yield "alloc", 0, ("steps", 0, "want", "a", 0, 2, "memory"), "4Gi"
    yield "alloc", 0, ("steps", 0, "want", "b", 0, 1), "d0"
    yield "alloc", 0, ("steps", 1, "want"), "error"
    yield "alloc", 0, ("steps", 3, "want"), None
    yield "alloc", 0, ("steps", 4, "want"), None
    yield "alloc", 0, ("steps", 5, "want"), "fail"
    yield "alloc", 1, ("steps", 0, "want_node", "n1"), {}
    yield "alloc", 1, ("pools", 1, "devices"), [{"name": "b"}]
    yield "cel", 0, ("want",), False
    yield "cel", 1, ("want", "devmgmt"), True
    yield "cel", 2, ("want",), "compile-error"
    yield "cel", 3, ("want",), "runtime-error"
    yield "equal", 0, (2,), False
    yield "round", 0, (2,), "7140m"
    yield "round", 0, (3,), "7130m"
    yield "quantity", 0, (1,), "1024Mi"
    yield "quantity", 0, (2,), 1
    yield "quantity", 1, (1,), "1k"
    yield "semver", 1, (1,), "<"
    yield "validation", 0, ("valid",), True
    yield "validation", 1, ("valid",), False
    yield "podresources", 0, ("want", "claim_resources", 1, "cdi_devices"), [{"name": "x"}]
    yield "podresources", 1, ("want",), {}


@pytest.mark.parametrize(("section", "row", "path", "value"), list(wrong_rows()))
def test_replay_finds_wrong_expectations(section, row, path, value):
    vectors = yaml.safe_load(SAMPLE.read_text())
    changed = copy.deepcopy(vectors[section][row])
    *parents, last = path
    inner = changed
    for key in parents:
        inner = inner[key]
    inner[last] = value
    assert len(disagreeing(replay_vectors({section: [changed]}))) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "is not a file of format claims-vectors/1"),
        ("format: claims-vectors/2", "is not a file of format claims-vectors/1"),
        ("a: [", "not YAML: line"),
        ("format: claims-vectors/1\nmood: [1]", "unknown section mood"),
        ("format: claims-vectors/1\ncel: [{}]", "row cel[0] is malformed"),
        (
            "format: claims-vectors/1\nalloc: [{id: x, mood: 1}]",
            "unknown field in the vectors: mood",
        ),
    ],
)
def test_replay_rejects_invalid_files(tmp_path, capsys, text, complaint):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert main(["claims", str(path)]) == 2
    assert complaint in capsys.readouterr().err
    with pytest.raises(ReplayError):
        list(replay_file(path))


def test_replay_of_no_rows_fails(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text("format: claims-vectors/1\n")
    assert main(["claims", str(path)]) == 1
    assert capsys.readouterr().out == "0 of 0 agree\n"
