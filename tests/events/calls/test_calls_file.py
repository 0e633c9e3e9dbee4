"""The file to which a kubelet writes its calls with plugins."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from devicemanager.events.calls import Call, CallLog, call_data
from devicemanager.events.calls.file import SCHEMA, CallsFile
from devicemanager.events.calls.log import CallRecorder
from devicemanager.events.stream import EventStream
from tests.timing import wait_until


def recorder_of(calls: CallLog) -> CallRecorder:
    recorder = calls.recorder("vendor.com/gpu", "g.sock")
    assert recorder is not None
    return recorder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_open_file_gets_line_per_call(tmp_path: Path) -> None:
    calls = CallLog(EventStream(), 100, 1000)
    recorder_of(calls).begin("Allocate").answered(b"")
    path = tmp_path / "calls"
    path.write_text("old")
    with CallsFile(path, calls, pytest.fail) as file:
        for _ in range(3):
            recorder_of(calls).begin("ListAndWatch").received_message(b"")
            recorder_of(calls).begin("Allocate").failed("Internal", "why")
    file.close()
    recorder_of(calls).begin("Allocate").answered(b"")
    assert lines(path) == [
        {"schema": SCHEMA, **call_data(call)} for call in calls() if 1 < call.number < 8
    ]


def test_call_is_in_the_file_before_it_is_closed(tmp_path: Path) -> None:
    calls = CallLog(EventStream(), 100, 1000)
    path = tmp_path / "calls"
    with CallsFile(path, calls, pytest.fail) as file:
        for count in (1, 2):
            recorder_of(calls).begin("Allocate").answered(b"")
            wait_until(lambda count=count: len(lines(path)) == count)
            # The thread waits for the next call.
            assert not file._changed.is_set()
    assert {line["schema"] for line in lines(path)} == {"devicemanager.call/v1"}
    assert calls._subscribers == ()


def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    before = os.umask(0)
    try:
        with CallsFile(path, CallLog(EventStream(), 100, 1000), pytest.fail):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_without_calls_can_be_closed(tmp_path: Path) -> None:
    with CallsFile(tmp_path / "calls", CallLog(EventStream(), 100, 1000), pytest.fail):
        pass
    assert lines(tmp_path / "calls") == []


class SlowLog(CallLog):
    """A call log that returns no calls until it is released."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.released = threading.Event()

    def later(self, number: int) -> list[Call]:
        assert self.released.wait(20)
        return super().later(number)


def test_dropped_calls_are_counted(tmp_path: Path) -> None:
    calls = SlowLog(EventStream(), 2, 1000)
    with CallsFile(tmp_path / "calls", calls, pytest.fail):
        for _ in range(5):
            recorder_of(calls).begin("Allocate").answered(b"")
        calls.released.set()
    written = lines(tmp_path / "calls")
    assert written[0] == {"schema": SCHEMA, "number": 3, "dropped": 3}
    assert [line["number"] for line in written] == [3, 4, 5]


def test_full_disk_is_reported_once(tmp_path: Path) -> None:
    calls = CallLog(EventStream(), 10, 1000)
    failures: list[OSError] = []
    with CallsFile(Path("/dev/full"), calls, failures.append):
        recorder_of(calls).begin("Allocate").answered(b"")
    recorder_of(calls).begin("Allocate").answered(b"")
    assert [failure.errno for failure in failures] == [errno.ENOSPC]
    with pytest.raises(OSError, match=r"^\[Errno 21\] Is a directory"):
        CallsFile(tmp_path, calls, failures.append)
