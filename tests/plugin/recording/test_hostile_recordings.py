"""Invalid recordings: each is a one-line error."""

import json
import os

import pytest

from devicemanager.plugin.recording import Recording
from devicemanager.plugin.recording.calls import SCHEMA
from devicemanager.plugin.recording.errors import RecordingError

HEADER = {"schema": SCHEMA, "time": 1.0, "kubelet_dir": "/k", "redact_env": []}
CALL = {
    "number": 1,
    "time": 1.0,
    "kubelet": 1,
    "registration": 1,
    "resource": "example.com/gpu",
    "plugin": "p.sock",
    "direction": "to-kubelet",
    "rpc": "Register",
    "code": "OK",
    "message": "",
    "duration": 0.1,
    "request_bytes": "",
    "response_bytes": "",
}
FAR = int("1" + "0" * 400)


def file_of(*lines: object) -> str:
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)


def test_valid_recording(tmp_path):
    (tmp_path / "r").write_text(file_of(HEADER, CALL))
    assert Recording.load(tmp_path / "r").resources == ("example.com/gpu",)


@pytest.mark.parametrize(
    "lines", [(HEADER | {"schema": "x" * 9999},), (HEADER, {"number": "x" * 9999})]
)
def test_long_invalid_values_are_shortened_in_errors(tmp_path, lines):
    (tmp_path / "r").write_text(file_of(*lines))
    with pytest.raises(RecordingError) as raised:
        Recording.load(tmp_path / "r")
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (file_of("[" * 100_000), "r:1: JSON is nested too deeply"),
        (file_of(HEADER, "[" * 100_000), "r:2: JSON is nested too deeply"),
        (file_of(HEADER, "1" * 10_000), "r:2: not JSON: "),
        (file_of(HEADER | {"time": None}), "r:1: invalid time"),
        (file_of(HEADER | {"time": FAR}), "r:1: invalid time"),
        (file_of(HEADER, CALL | {"time": FAR}), "r:2: not a recorded call: "),
        (file_of(HEADER, CALL | {"redacted": 1}), "r:2: not a recorded call: "),
        (file_of(HEADER, CALL | {"ended_by": []}), "r:2: not a recorded call: "),
        (file_of(HEADER, CALL | {"response_bytes": 1}), "r:2: not a recorded call: "),
    ],
)
def test_invalid_recording_is_a_one_line_error(tmp_path, text, expected):
    (tmp_path / "r").write_text(text)
    with pytest.raises(RecordingError) as raised:
        Recording.load(tmp_path / "r")
    message = str(raised.value)
    assert message.count(expected) == 1
    assert message.count("r:") == 1
    assert "\n" not in message


def test_pipe_or_huge_file_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 30)
    for name, expected in {
        "fifo": "a pipe, not a regular file",
        "sparse": "1073741824 bytes",
    }.items():
        with pytest.raises(RecordingError, match=expected):
            Recording.load(tmp_path / name)
