"""Record the calls of a driver, and replay them."""

import io
import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from devicemanager.cli import main
from devicemanager.driver.recording import DriverRecorder, ReplayDriver
from devicemanager.driver.simulated import DriverFaults, SimulatedDriver
from devicemanager.plugin.recording import NotRecorded, RecordingError
from tests.driver.kubelet_calls import KubeletCalls

DRIVER = "gpu.example.com"


def claim(name, uid):
    return {"metadata": {"namespace": "default", "name": name, "uid": uid}}


@pytest.fixture
def driver(directory):
    with SimulatedDriver(DRIVER, devices=2, root=directory) as started:
        yield started
        started.faults = DriverFaults()


@pytest.fixture
def recorder(directory, driver):
    reported = []
    made = DriverRecorder(
        directory / "calls.ndjson", directory / "plugins_registry", report=reported.append
    )
    with made as started:
        yield started
        assert "cannot" not in str(reported)


def replaced(recorder, driver):
    """Wait until the recorder serves in place of the driver; return the kubelet's calls."""
    for _ in range(200):
        found = KubeletCalls(driver.sockets.registration_socket)
        if found.info.endpoint != str(driver.sockets.service_socket):
            return found
        found.close()
        recorder._changed.wait(recorder._changed.count, 0.05)
    raise AssertionError("the recorder does not serve")


@pytest.fixture
def recording(directory, recorder, driver):
    """A recording: one claim succeeds, one fails first, a whole call fails, and health changes."""
    with replaced(recorder, driver) as kubelet:
        assert kubelet.prepare(claim("train", "u1"))["u1"].devices
        driver.faults = DriverFaults(entry_error="no power")
        assert kubelet.prepare(claim("late", "u2"))["u2"].error == "no power"
        driver.faults = DriverFaults()
        assert kubelet.prepare(claim("late", "u2"))["u2"].devices
        driver.faults = DriverFaults(call_error="out of order")
        with pytest.raises(grpc.RpcError, match="out of order"):
            kubelet.unprepare(claim("train", "u1"))
        stream = kubelet.health()
        next(stream)
        driver.set_health("gpu-0", "Unhealthy", "hot")
        next(stream)
    recorder.stop()
    return directory / "calls.ndjson"


def test_recording_has_all_calls(recording, driver):
    lines = [json.loads(line) for line in recording.read_text().splitlines()][1:]
    rpcs = [line["rpc"] for line in lines]
    assert rpcs.count("NodePrepareResources") == 3
    assert "GetInfo" in rpcs and "NotifyRegistrationStatus" in rpcs
    [failed] = [line for line in lines if line["rpc"] == "NodeUnprepareResources"]
    assert (failed["code"], failed["message"]) == ("Unknown", "out of order")
    assert {line["resource"] for line in lines} == {DRIVER}
    reports = [line for line in lines if line["rpc"] == "NodeWatchResources"]
    assert [line["stream_message"] for line in reports] == [1, 2, None]


def test_socket_of_the_driver_returns(recording, driver):
    with KubeletCalls(driver.sockets.registration_socket) as kubelet:
        assert kubelet.info.endpoint == str(driver.sockets.service_socket)
    registry = driver.sockets.registration_socket.parent
    assert [path.name for path in registry.iterdir()] == [f"{DRIVER}-reg.sock"]


def test_replayed_driver_responds_as_recorded(recording, driver, directory):
    driver.stop()
    with (
        ReplayDriver(recording, directory) as replayed,
        KubeletCalls(replayed.sockets.registration_socket) as kubelet,
    ):
        assert kubelet.info.supported_versions[0] == "v1.DRAPlugin"
        entries = kubelet.prepare(claim("late", "x"), claim("train", "y"))
        assert entries["x"].error == "no power"
        assert [each.device_name for each in entries["y"].devices] == ["gpu-0"]
        # The last result remains valid.
        for uid in ("x", "w"):
            assert kubelet.prepare(claim("late", uid))[uid].devices
        with pytest.raises(grpc.RpcError, match="out of order"):
            kubelet.unprepare(claim("train", "y"))
        stream = kubelet.health()
        assert [next(stream).devices[0].health for _ in range(2)] == [1, 2]
        replayed.check()
        error = kubelet.prepare(claim("new", "z"))["z"].error
        assert error.endswith(
            "claim default/new was not recorded; recorded: default/late, default/train"
        )
        with pytest.raises(NotRecorded, match="default/new"):
            replayed.check()


def test_driver_that_stops_while_it_is_recorded(recorder, driver):
    replaced(recorder, driver).close()
    driver.kill()
    registry = driver.sockets.registration_socket.parent
    for _ in range(200):
        if not list(registry.iterdir()):
            return
        recorder._changed.notify()
        recorder._changed.wait(recorder._changed.count, 0.05)
    raise AssertionError(list(registry.iterdir()))


def test_socket_that_a_killed_recorder_left(directory, driver):
    path = driver.sockets.registration_socket
    path.rename(path.with_name(f".{path.name}.recorded"))
    recorder = DriverRecorder(directory / "other.ndjson", path.parent, drivers=["other.com"])
    with recorder, KubeletCalls(path) as kubelet:
        assert kubelet.info.endpoint == str(driver.sockets.service_socket)


def test_recorder_that_never_started_can_be_stopped(tmp_path):
    recorder = DriverRecorder(tmp_path / "x", tmp_path)
    assert recorder.calls == 0
    recorder.stop()
    failed = DriverRecorder("/nowhere/r", tmp_path)
    with pytest.raises(RecordingError, match=r"^cannot write /nowhere/r: No such file"):
        failed.start()
    failed.stop()
    failed.stop()
    assert failed.calls == 0
    assert [*tmp_path.iterdir()] == []


def test_file_that_takes_no_text_ends_the_start(tmp_path):
    recorder = DriverRecorder(io.BytesIO(), tmp_path)
    with pytest.raises(TypeError):
        recorder.start()
    assert recorder.calls == 0
    recorder.stop()


def test_recorder_starts_only_once(tmp_path):
    file = io.StringIO()
    recorder = DriverRecorder(file, tmp_path).start()
    for _ in range(2):
        with pytest.raises(RecordingError, match=r"^a recorder cannot be started again: create an"):
            recorder.start()
        recorder.stop()
    assert len(file.getvalue().splitlines()) == 1


def test_sockets_that_cannot_be_restored(tmp_path, monkeypatch):
    (tmp_path / ".gpu.sock.recorded").touch()

    def fail(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fail)  # root can write to every directory
    recorder = DriverRecorder(tmp_path / "x", tmp_path)
    with pytest.raises(RecordingError, match=r"^cannot restore the sockets of .*: Permission den"):
        recorder.start()
    with pytest.raises(RecordingError, match=r"^a recorder cannot be started again"):
        recorder.start()
    recorder.stop()
    assert not (tmp_path / "x").exists()


def test_full_disk_below_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr("devicemanager.plugin.recording.writer.open_new", full_disk)
    recorder = DriverRecorder(tmp_path / "x", tmp_path).start()
    with pytest.raises(RecordingError, match=r"^the recording is incomplete: No space left"):
        recorder.stop()


def full_disk(_path):
    return open("/dev/full", "w")  # noqa: PTH123 - closed by the recorder


def test_invalid_recordings(tmp_path, recording):
    with pytest.raises(RecordingError, match="is not a directory: use the kubelet's"):
        DriverRecorder(tmp_path / "x", tmp_path / "none")
    with pytest.raises(RecordingError, match=r"the driver other\.com was not recorded"):
        ReplayDriver(recording, tmp_path, "other.com")


COMMAND = Path(sys.executable).with_name("devicemanager")


def test_commands(driver, directory):
    """A driver is recorded and replayed by the commands, in the same place."""
    file, registry = directory / "calls.ndjson", directory / "plugins_registry"
    command = [COMMAND, "record", "-o", file, "--registrar-dir", registry]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
        assert "registers as" in recorder.stderr.readline()
        with KubeletCalls(driver.sockets.registration_socket) as kubelet:
            assert kubelet.prepare(claim("train", "u1"))["u1"].devices
        recorder.terminate()
        assert recorder.stderr.read().endswith("calls, reports and ends of streams\n")
        assert recorder.wait() == 0
    driver.stop()
    command = [COMMAND, "replay", file, "--root", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as replay:
        with KubeletCalls(driver.sockets.registration_socket) as kubelet:
            assert kubelet.prepare(claim("train", "x"))["x"].devices
            assert kubelet.prepare(claim("new", "y"))["y"].error
        assert "claim default/new was not recorded" in replay.stdout.readline()
        replay.terminate()
        assert replay.wait() == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--driver", "a"], "add --registrar-dir DIR"),
        (
            ["--registrar-dir", "/tmp", "--resource", "a"],
            "omit COMMAND, --plugin-dir, --resource and ",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments, text, capsys):
    assert main(["record", *arguments]) == 2
    assert text in capsys.readouterr().err
