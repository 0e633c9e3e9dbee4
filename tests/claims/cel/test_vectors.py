"""Recorded answers of Kubernetes' CEL environment, and the replay of a file of them."""

import io
import json

import pytest

from tests.paths import SAMPLE, VECTORS
from tools.replay import cel
from tools.replay.__main__ import main
from tools.replay.report import ReplayError, read_vectors

ROW = {
    "id": "r",
    "category": "c",
    "device": "d",
    "expression": "device.driver == 'x'",
    "compile": "ok",
    "result": True,
    "admission": "ok",
}
DEVICE = {"driver": "x", "attributes": {"n": {"int": 1}, "l": {"ints": [1]}}, "capacity": {}}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path.with_name(f"{path.stem}-devices.json").write_text(json.dumps({"d": DEVICE}))
    return path


def test_sample_agrees_in_both_versions():
    outcomes = list(cel.replay_file(SAMPLE / "cel-dra.jsonl"))
    assert len(outcomes) > 100
    assert [each.id for each in outcomes if each.differences or each.texts] == []
    assert sum(1 for each in outcomes if each.refused) == 3


@pytest.mark.skipif(VECTORS is SAMPLE, reason="needs the full sets of vectors")
def test_all_rows_agree():
    file = VECTORS / "cel-dra.jsonl"
    devices = cel.read_devices(file)
    # The costliest evaluations take a second each. The replay of the file has them.
    rows = [row for row in read_vectors(file) if (row["actualCost"] or 0) <= 100_000]
    outcomes = [cel.replay_row(row, devices[row["device"]], ["1.36"]) for row in rows]
    assert [each.id for each in outcomes if each.differences] == []
    assert len([each for each in outcomes if each.texts]) <= 2
    assert cel.report(outcomes, io.StringIO()) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"result": False},
        {"result": "no such key: x"},
        {"compile": "compilation failed: x", "result": None},
        {"admission": "too complex, exceeds cost limit"},
        {"v1_37": {"result": False}},
    ],
)
def test_different_answer_is_wrong(tmp_path, change, capsys):
    file = write(tmp_path / "rows.jsonl", {**ROW, **change})
    assert main(["cel", str(file)]) == 1
    assert "0 of 1 agree, 0 refused, 1 wrong" in capsys.readouterr().out


def test_different_text_is_counted_and_shown_on_request(tmp_path, capsys):
    row = {**ROW, "expression": "1 / 0 == 1", "result": "no"}
    file = write(tmp_path / "rows.jsonl", row)
    assert main(["cel", str(file), "--texts", "--kubelet-version", "1.36"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "r: agree",
        "  1.36: result: differs at 0 (lengths 2 and 16)",
        "  expected …'no'…",
        "  actual   …'division by zero'…",
        "category       agree refused   wrong",
        "c                  1       0       0",
        "1 of 1 agree, 0 refused, 0 wrong; 1 with other texts",
    ]


def test_many_refused_rows_fail(tmp_path, capsys):
    deep = {**ROW, "expression": "(" * 40 + "true" + ")" * 40}
    rows = [ROW] * 16
    assert main(["cel", str(write(tmp_path / "few.jsonl", *rows, deep))]) == 0
    assert main(["cel", str(write(tmp_path / "many.jsonl", *rows, deep, deep))]) == 1
    assert "refused 2: not supported: nested too deeply" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "fault"),
    [({"id": "x"}, "row x is malformed"), ({**ROW, "device": "no"}, "row r is malformed")],
)
def test_malformed_row_is_a_one_line_error(tmp_path, row, fault):
    with pytest.raises(ReplayError, match=fault):
        list(cel.replay_file(write(tmp_path / "rows.jsonl", row)))


def test_missing_devices_and_unknown_versions_are_errors(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW))
    with pytest.raises(ReplayError, match=r"cel-dra-devices\.json: cannot be read"):
        list(cel.replay_file(file))
    (tmp_path / "cel-dra-devices.json").write_text("{")
    with pytest.raises(ReplayError, match="is not JSON"):
        list(cel.replay_file(file))
    with pytest.raises(ReplayError, match=r"unknown version 1\.30: use 1\.36 or 1\.37"):
        list(cel.replay_file(file, ["1.30"]))
