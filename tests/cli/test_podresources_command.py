"""``devicemanager podresources serve``."""

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devicemanager.cli import main
from podresources import PodResourcesClient

COMMAND = Path(sys.executable).with_name("devicemanager")


def test_server_runs_until_sigterm(tmp_path):
    script = tmp_path / "node.yaml"
    script.write_text("pod_resources: [{name: a}]\nsteps: [{set_pods: [{name: b}]}]\n")
    with subprocess.Popen(
        [COMMAND, "podresources", "serve", script, "--kubelet-version", "1.32"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            first, *_ = lines = [process.stdout.readline() for _ in range(3)]
            socket = Path(first.removeprefix("pod resources socket: ").strip())
            with PodResourcesClient(socket) as client:
                assert [pod.name for pod in client.list()] == ["a", "b"]
        finally:
            process.send_signal(signal.SIGTERM)
    assert lines[1:] == ["ready: 1 pod, 1 step\n", "step 1: 2 pods\n"]
    assert process.returncode == 0
    assert not socket.parent.exists()


def test_part_of_the_script_can_come_from_standard_input(tmp_path):
    script = tmp_path / "steps.yaml"
    script.write_text("steps: [{set_pods: [{name: b}]}]\n")
    with subprocess.Popen(
        [COMMAND, "podresources", "serve", "-", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            process.stdin.write("pod_resources: [{name: a}]\n")
            process.stdin.close()
            lines = [process.stdout.readline() for _ in range(2)]
        finally:
            process.send_signal(signal.SIGTERM)
    assert lines[1] == "ready: 1 pod, 1 step\n"
    assert process.returncode == 0


def test_invalid_standard_input_is_a_one_line_error(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("pod_resources: [{}]"))
    assert main(["podresources", "serve", "-"]) == 2
    assert "-: pod_resources[0]: name is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/nowhere"], "/nowhere: No such file or directory"),
        (
            ["{script}", "--kubelet-version", "x"],
            "--kubelet-version: invalid kubelet version 'x'",
        ),
        (["{script}", "--socket", "/" + "x" * 200], "the kernel allows 107"),
        (["{wrong}"], "wrong.yaml: pod_resources[0]: name is missing"),
    ],
)
def test_invalid_arguments_are_a_one_line_error(tmp_path, arguments, text, capsys):
    (tmp_path / "script.yaml").touch()
    (tmp_path / "wrong.yaml").write_text("pod_resources: [{}]")
    names = {"script": tmp_path / "script.yaml", "wrong": tmp_path / "wrong.yaml"}
    filled = [argument.format(**names) for argument in arguments]
    assert main(["podresources", "serve", *filled]) == 2
    captured = capsys.readouterr()
    assert text in captured.err and captured.err.count("\n") == 1


def test_missing_temporary_directory_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    (tmp_path / "script.yaml").touch()
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert main(["podresources", "serve", str(tmp_path / "script.yaml")]) == 2
    assert capsys.readouterr().err == (
        "devicemanager: error: cannot make a temporary directory in /nowhere: No such file or "
        "directory: set a socket path, or set TMPDIR to a directory whose path has at most 30 "
        "bytes\n"
    )
