"""Lines of a recording: all fields of each kind of entry."""

from __future__ import annotations

import base64
import errno
import io
import json
import stat
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.plugin.recording.calls import EndedBy, RecordedCall, call_from_line
from devicemanager.plugin.recording.redaction import Redaction
from devicemanager.plugin.recording.writer import RecordingWriter, Registered, open_new
from protos import deviceplugin_v1beta1 as dp

REGISTRATION = Registered(2, 3, "vendor.com/gpu", "gpu.sock")


def ignore(_: object) -> None:
    pass


def encoded(message: Any) -> str:
    return base64.b64encode(message.SerializeToString(deterministic=True)).decode()


def lines_of(file: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_every_kind_of_entry_has_all_fields() -> None:
    file = io.StringIO()
    writer = RecordingWriter(file, "/k", Redaction(["TOKEN"]), ignore)
    writer.open()
    register = dp.RegisterRequest(version="v1beta1", endpoint="gpu.sock")
    request, response = dp.AllocateRequest(), dp.AllocateResponse()
    request.container_requests.add(devices_ids=["g"])
    response.container_responses.add(envs={"TOKEN": "s", "N": "1"})
    devices = dp.ListAndWatchResponse(devices=[dp.Device(ID="g", health="Healthy")])

    writer.begin(REGISTRATION, "Register", register.SerializeToString()).ended(
        "Unknown", "no", EndedBy.KUBELET
    )
    stream = writer.begin(REGISTRATION, "ListAndWatch", b"")
    stream.received(devices.SerializeToString())
    allocate = writer.begin(REGISTRATION, "Allocate", request.SerializeToString())
    allocate.received(response.SerializeToString())
    allocate.ended("OK", "", EndedBy.PLUGIN)
    second = writer.begin(REGISTRATION, "ListAndWatch", b"")
    second.ended("Unavailable", "gone", EndedBy.PLUGIN)
    assert writer.calls == 4
    writer.close()
    stream.ended("OK", "", EndedBy.PLUGIN)  # too late
    assert (writer.calls, writer.error) == (5, None)

    first, *lines = lines_of(file)
    assert first.pop("time") > 0
    assert first == {
        "schema": "devicemanager.recording/v1",
        "kubelet_dir": "/k",
        "redact_env": ["TOKEN"],
    }
    # Each line is read as it was written.
    assert [call_from_line(line).number for line in lines] == [1, 2, 3, 4, 5]
    for line in lines:
        assert line.pop("time") > 0
        assert line.pop("duration") >= 0
    common = {
        "kubelet": 2,
        "registration": 3,
        "resource": "vendor.com/gpu",
        "plugin": "gpu.sock",
        "direction": "to-plugin",
        "stream": None,
        "stream_message": None,
        "response": None,
        "code": "OK",
        "message": "",
        "redacted": [],
        "request_bytes": "",
        "response_bytes": None,
    }
    redacted = dp.AllocateResponse()
    redacted.container_responses.add(envs={"TOKEN": "REDACTED", "N": "1"})
    container = {
        "envs": {"N": "1", "TOKEN": "REDACTED"},
        "mounts": [],
        "devices": [],
        "annotations": {},
        "cdi_devices": [],
        "typed_devices": [],
    }
    assert lines == [
        {
            **common,
            "number": 1,
            "direction": "to-kubelet",
            "rpc": "Register",
            "request": {
                "version": "v1beta1",
                "endpoint": "gpu.sock",
                "resource_name": "",
            },
            "request_bytes": encoded(register),
            "code": "Unknown",
            "message": "no",
            "ended_by": "kubelet",
        },
        {
            **common,
            "number": 2,
            "rpc": "ListAndWatch",
            "stream": 1,
            "stream_message": 1,
            "request": {},
            "response": {"devices": [{"ID": "g", "health": "Healthy"}]},
            "response_bytes": encoded(devices),
            "ended_by": None,
        },
        {
            **common,
            "number": 3,
            "rpc": "Allocate",
            "request": {"container_requests": [{"devices_ids": ["g"]}]},
            "request_bytes": encoded(request),
            "response": {"container_responses": [container]},
            "response_bytes": encoded(redacted),
            "ended_by": "plugin",
            "redacted": ["TOKEN"],
        },
        {
            **common,
            "number": 4,
            "rpc": "ListAndWatch",
            "stream": 2,
            "request": {},
            "code": "Unavailable",
            "message": "gone",
            "ended_by": "plugin",
        },
        {
            **common,
            "number": 5,
            "rpc": "ListAndWatch",
            "stream": 1,
            "request": {},
            "code": "Canceled",
            "message": "the recording ended",
            "ended_by": "recorder",
        },
    ]


class _Full(io.StringIO):
    """A file without space for further lines."""

    space = 1

    def write(self, text: str) -> int:
        if not self.space:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.space -= 1
        return super().write(text)


def test_after_an_error_no_further_line_is_written() -> None:
    file, failures = _Full(), list[OSError]()
    writer = RecordingWriter(file, "/k", Redaction(), failures.append)
    writer.open()
    for space in (0, 1):
        file.space = space
        writer.begin(REGISTRATION, "Allocate", b"").ended("OK", "", EndedBy.PLUGIN)
    assert failures == [writer.error]
    assert failures[0].errno == errno.ENOSPC
    assert len(lines_of(file)) == 1


def test_closed_file_is_an_error_too() -> None:
    file, failures = io.StringIO(), list[OSError]()
    writer = RecordingWriter(file, "/k", Redaction(), failures.append)
    writer.open()
    file.close()
    writer.begin(REGISTRATION, "Allocate", b"").ended("OK", "", EndedBy.PLUGIN)
    assert [str(error) for error in failures] == ["I/O operation on closed file"]


def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with open_new(path) as file:
        file.write("ä")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == "ä".encode()
    with pytest.raises(FileExistsError):
        open_new(path)


def test_omitted_fields_of_a_call_have_defaults() -> None:
    given: dict[str, Any] = {
        "number": 1,
        "time": 2.0,
        "kubelet": 3,
        "registration": 4,
        "resource": "r",
        "plugin": "p",
        "direction": "to-plugin",
        "rpc": "Allocate",
        "request_bytes": b"",
    }
    call = RecordedCall(**given)
    assert attrs.asdict(call) == {
        **given,
        "response_bytes": None,
        "code": "OK",
        "message": "",
        "duration": 0.0,
        "stream": None,
        "stream_message": None,
        "ended_by": None,
        "redacted": (),
    }
