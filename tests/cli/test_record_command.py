"""``devicemanager record`` and ``replay``: arguments, output and exit status."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devicemanager.cli import main
from devicemanager.plugin.recording import Recording
from devicemanager.testing import pod_manifest
from tests.plugin.recording.conftest import devices
from tests.plugin.recording.test_replay import RecordingBuilder

COMMAND = Path(sys.executable).with_name("devicemanager")
GPU = "vendor.com/gpu"
DEADLINE = 30
PLUGIN = [sys.executable, "-m", "devicemanager.plugin.simulated", "run"]
SETTINGS = {"RESOURCE_NAME": GPU, "DEVICE_ID_PREFIX": "gpu", "NODE_NAME": "n"}


@pytest.fixture
def run():
    """Function that runs the command until the end of the test."""
    running = []

    def start(*arguments):
        running.append(
            subprocess.Popen(
                [COMMAND, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | SETTINGS,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def stop(process):
    process.send_signal(signal.SIGTERM)
    printed, errors = process.communicate(timeout=DEADLINE)
    return process.returncode, printed, errors


def test_plugin_with_the_fixed_path_of_a_node_finds_the_recorder(run, mock_kubelet, tmp_path):
    fixed = "/var/lib/kubelet/device-plugins"
    place = ["--kubelet-dir", mock_kubelet.plugin_dir, "-o", tmp_path / "r.ndjson"]
    recorder = run("record", *place, "--", *PLUGIN, "--directory", fixed)
    mock_kubelet.wait_for_resource(GPU, 2, timeout=DEADLINE)
    assert stop(recorder)[0] == 0


def test_command_finds_the_recorder_by_its_variable(run, mock_kubelet, tmp_path):
    place = ["--kubelet-dir", mock_kubelet.plugin_dir, "-o", tmp_path / "r.ndjson"]
    script = 'test "$DEVICE_PLUGIN_DIRECTORY" = "$1" && exit 7'
    recorder = run("record", *place, "--", "sh", "-c", script, "sh", "{plugin_dir}")
    recorder.communicate(timeout=DEADLINE)
    assert recorder.returncode == 7


def test_recorded_plugin_is_replayed_in_the_same_directory(run, mock_kubelet, tmp_path):
    """The plugin needs no other path: it finds the recorder in the kubelet's directory."""
    file, directory = tmp_path / "r.ndjson", mock_kubelet.plugin_dir
    recorder = run(
        "record", "--kubelet-dir", directory, "-o", file, "--", *PLUGIN, "--directory", directory
    )
    mock_kubelet.wait_for_resource(GPU, 2, timeout=DEADLINE)
    assert mock_kubelet.admit(pod_manifest("a", {GPU: 1}, uid="a")).admitted
    status, printed, errors = stop(recorder)
    assert (status, printed) == (0, "")
    assert f"devicemanager record: {GPU} registers as simple-device-plugin" in errors
    assert errors.endswith("recorded 5 lines: calls, lists and ends of streams\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [call.rpc for call in Recording.load(file).registrations(GPU)[0].calls] == [
        "GetDevicePluginOptions",
        "Allocate",
    ]
    mock_kubelet.wait_for_resource(GPU, 0)
    mock_kubelet.terminate("a")

    replay = run("replay", file, "--immediate", "--directory", directory, "-o", "json")
    mock_kubelet.wait_for_resource(GPU, 2, timeout=DEADLINE)
    assert mock_kubelet.admit(pod_manifest("a", {GPU: 1})).admitted
    assert not mock_kubelet.admit(pod_manifest("b", {GPU: 1})).admitted
    status, printed, errors = stop(replay)
    assert (status, errors) == (1, "")
    data = json.loads(printed)
    assert data.pop("message").startswith("Allocate of gpu-n-1 was not recorded; most similar: ")
    assert data == {
        "schema": "devicemanager.replay/v1",
        "resource": GPU,
        "rpc": "Allocate",
        "request": {"container_requests": [{"devices_ids": ["gpu-n-1"]}]},
        "nearest": {"container_requests": [{"devices_ids": ["gpu-n-0"]}]},
    }


def test_replay_reads_standard_input(mock_kubelet, tmp_path):
    file = tmp_path / "r.ndjson"
    RecordingBuilder(file).register().stream((0.0, devices("gpu-0"))).write()
    with (
        file.open() as stdin,
        subprocess.Popen(
            [COMMAND, "replay", "-", "--immediate", "--directory", mock_kubelet.plugin_dir],
            stdin=stdin,
        ) as process,
    ):
        try:
            mock_kubelet.wait_for_resource(GPU, 1, timeout=DEADLINE)
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "- is not a recording of this version"),
        ("{}\n", "- is not a recording of this version"),
    ],
)
def test_replay_rejects_an_invalid_recording_on_standard_input(text, error, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["replay", "-"]) == 2
    assert error in capsys.readouterr().err


def test_record_exits_with_its_command(run, mock_kubelet, tmp_path):
    file = tmp_path / "r.ndjson"
    directory = mock_kubelet.plugin_dir
    recorder = run(
        "record",
        "--kubelet-dir",
        directory,
        "-o",
        file,
        "--",
        "sh",
        "-c",
        "echo {plugin_dir}; exit 7",
    )
    printed, _ = recorder.communicate(timeout=DEADLINE)
    assert recorder.returncode == 7
    assert printed.startswith("/tmp/dm-") and not Path(printed.strip()).exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["record", "--", "true"], "a recording with COMMAND cannot use standard output"),
        (["record", "--kubelet-dir", "/nowhere"], "/nowhere is not a directory"),
        (["replay", "/nowhere"], "/nowhere: No such file or directory"),
    ],
)
def test_invalid_arguments_are_a_one_line_error(arguments, text, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err and captured.err.count("\n") == 1


def test_missing_temporary_directory_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    place = ["--kubelet-dir", str(tmp_path), "-o", str(tmp_path / "r")]
    assert main(["record", *place, "--", "true"]) == 2
    assert capsys.readouterr().err == (
        "devicemanager: error: cannot make a temporary directory in /nowhere: No such file or "
        "directory: set a plugin directory, or set TMPDIR to a directory whose path has at most 30 "
        "bytes\n"
    )


@pytest.mark.parametrize("speed", ["0", "-1", "inf", "nan", "fast"])
def test_invalid_speed_is_rejected(speed, capsys):
    assert main(["replay", "r", f"--speed={speed}"]) == 2
    text = f"argument --speed: invalid speed '{speed}': expected a number above 0\n"
    assert capsys.readouterr().err.endswith(text)
