"""The control file of a simulated plugin, and the device IDs in logged calls."""

from __future__ import annotations

import logging
import os

import pytest

from devicemanager.plugin.simulated import SimulationSettings
from devicemanager.plugin.simulated import command as command_module
from devicemanager.plugin.simulated.control import ControlFile, parse_control
from devicemanager.plugin.simulated.plugin import _Simulated
from devicemanager.plugin.simulated.service import RpcCall
from protos import deviceplugin_v1beta1 as dp


@pytest.fixture
def control(tmp_path):
    """A control file in a directory that does not exist, which cannot be watched."""
    applied: list[dict[str, str]] = []
    file = ControlFile(tmp_path / "later" / "control", applied.append)
    yield file, tmp_path / "later" / "control", applied
    file.close()


def test_control_file_is_applied_after_each_change_of_its_content(control):
    file, path, applied = control
    file._read()
    assert applied == []  # a missing file is empty
    path.parent.mkdir()
    for text in ("", "a Healthy\n", "a Healthy\n", "b gone\n", ""):
        path.write_text(text)
        file._read()
    assert applied == [{"a": "Healthy"}, {"b": "gone"}, {}]
    path.write_text("a gone")
    file._read()
    path.unlink()
    file._read()
    assert applied[3:] == [{"a": "gone"}, {}]


def test_rejected_file_is_empty_and_logged_once(control, caplog):
    file, path, applied = control
    path.parent.mkdir()
    path.write_text("a gone")
    file._read()
    path.unlink()
    os.mkfifo(path)
    for _ in range(2):
        file._read()
    assert applied == [{"a": "gone"}, {}]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"cannot read control file {path}: ")


def test_undecodable_line_is_skipped(control, caplog):
    file, path, applied = control
    path.parent.mkdir()
    path.write_bytes(b"\xff\na gone\n")
    file._read()
    assert applied == [{"a": "gone"}]
    assert caplog.messages == [
        f"{path}:1: invalid line '\ufffd': expected ID and Healthy, Unhealthy or gone"
    ]


@pytest.mark.parametrize(
    ("line", "states"),
    [
        ("a Healthy", {"a": "Healthy"}),
        ("  a\tUnhealthy  ", {"a": "Unhealthy"}),
        ("a gone", {"a": "gone"}),
        ("# a gone", {}),
        ("#a gone", {}),
        ("", {}),
        ("a gone\na Healthy", {"a": "Healthy"}),
        ("# comment\n\na gone", {"a": "gone"}),
    ],
)
def test_lines_of_a_control_file(line, states, caplog):
    assert parse_control(line, "file") == states
    assert caplog.messages == []


@pytest.mark.parametrize("line", ["a", "a healthy", "a Healthy b", "a Gone"])
def test_invalid_lines_of_a_control_file(line, caplog):
    assert parse_control(f"b gone\n{line}", "file") == {"b": "gone"}
    assert caplog.messages == [
        f"file:2: invalid line {line!r}: expected ID and Healthy, Unhealthy or gone"
    ]


def test_changed_states_are_published_at_once(monkeypatch):
    settings = SimulationSettings(
        resource_name="vendor.com/gpu", number_devices=1, control_file="/no/such/file"
    )
    plugin = _Simulated(settings, 60.0)
    published: list[list[tuple[str, bool]]] = []
    monkeypatch.setattr(
        plugin,
        "update",
        lambda table: published.append([(each.id, each.healthy) for each in table]),
    )
    plugin.start()
    assert published == []  # the devices are known after the first read of the file
    (device,) = plugin.table
    plugin._control({device.id: "gone"})
    plugin._control({device.id: "Unhealthy"})
    assert published[0] == []
    assert published[1] == [(device.id, False)]


@pytest.mark.parametrize(
    ("request_", "ids"),
    [
        (
            dp.AllocateRequest(
                container_requests=[
                    dp.ContainerAllocateRequest(devices_ids=["a", "b"]),
                    dp.ContainerAllocateRequest(devices_ids=["c"]),
                ]
            ),
            (("a", "b"), ("c",)),
        ),
        (dp.AllocateRequest(), ()),
        (dp.PreStartContainerRequest(devices_ids=["a", "b"]), (("a", "b"),)),
        (dp.PreStartContainerRequest(), ((),)),
        (dp.Empty(), ()),
        (dp.PreferredAllocationRequest(), ()),
    ],
)
def test_device_ids_of_a_call(request_, ids):
    assert RpcCall("Any", request_).device_ids == ids


def test_log_lines_have_time_and_level(monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    command_module._configure_logging()
    (handler,) = logging.root.handlers
    assert logging.root.level == logging.INFO
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "it %s", ("failed",), None)
    record.created, record.msecs = 0.0, 7.0
    date, clock, text = handler.format(record).split(" ", 2)
    assert (len(date), clock[-4:], text) == (10, ",007", "ERROR it failed")
