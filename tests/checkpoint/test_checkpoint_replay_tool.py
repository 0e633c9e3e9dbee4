"""Output and exit status of ``python -m tools.replay``."""

import json
from pathlib import Path

import pytest

from tools.replay.__main__ import main
from tools.replay.report import Outcome, ReplayError, difference, read_vectors, report

OWN = Path(__file__).parent / "data" / "checkpoint.jsonl"


def test_replay_reports_agreement(capsys):
    assert main(["checkpoint", str(OWN)]) == 0
    assert capsys.readouterr().out == "12 of 12 agree\n"


def test_replay_reports_a_difference(tmp_path, capsys):
    lines = OWN.read_text().splitlines()
    vector = json.loads(lines[3]) | {"checksum": 7}
    path = tmp_path / "altered.jsonl"
    path.write_text("\n".join([*lines[:3], json.dumps(vector), *lines[4:]]))
    assert main(["checkpoint", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("one device: disagrees\n  checksum:\n    expected 7\n    actual   ")
    assert out.endswith("\n11 of 12 agree\n")


def test_replay_reports_an_exception_as_difference(tmp_path, capsys):
    vector = json.loads(OWN.read_text().splitlines()[3])
    vector["entries"][0]["PodUID"] = "\ud800"
    path = tmp_path / "surrogate.jsonl"
    path.write_text(json.dumps(vector))
    assert main(["checkpoint", str(path)]) == 1
    assert "one device: disagrees\n  raised UnicodeEncodeError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "no vectors"),
        (b'{"id": "x"}\n', "vector x is not in the checkpoint format"),
        (b"{}\n", "vector number 1 is not in the checkpoint format"),
        (b'{"entries": 5, "registered_devices": {}, "file": "", "checksum": 1}', "number 1"),
        (b"[]\n", "line 1 is not a JSON object"),
        (b"\n{,\n", "line 2 is not JSON"),
        (b"\xff\n", "is not UTF-8 at byte 0"),
        (b"[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_replay_rejects_an_invalid_file(tmp_path, capsys, content, problem):
    path = tmp_path / "vectors.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert main(["checkpoint", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert f"{path}: " in captured.err
    assert problem in captured.err


@pytest.mark.parametrize("arguments", [[], ["checkpoint"], ["nonsense", "FILE"]])
def test_replay_usage(arguments, capsys):
    with pytest.raises(SystemExit, match=r"^2"):
        main(arguments)
    assert "usage: python -m tools.replay" in capsys.readouterr().err


def test_replay_of_nothing_fails(tmp_path, capsys):
    path = tmp_path / "blank.jsonl"
    path.write_text("\n \n")
    with pytest.raises(ReplayError, match="no vectors"):
        list(read_vectors(path))
    with path.open("w") as out:
        assert report([], out) == 1
        assert report([Outcome("a", [])], out) == 0


def test_difference_shows_its_position():
    assert difference("file", b"same", b"same") == []
    (text,) = difference("file", b"x" * 500 + b"a" * 500, b"x" * 500 + b"b")
    assert text.startswith("file: differs at 500 (lengths 1000 and 501)\n")
    assert difference("file", "ab", "abc")[0].startswith("file: differs at 2 (lengths 2 and 3)")
