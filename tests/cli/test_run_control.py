"""``devicemanager run --control``."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from devicemanager.cli import main
from devicemanager.control import MockKubeletClient
from tests.cli.records import until_ready

RUN = [sys.executable, "-m", "devicemanager.cli", "run", "-o", "json"]


def test_control_api_controls_a_running_kubelet(make_mock_kubelet):
    root = make_mock_kubelet(start=False).root / "r"
    command = [*RUN, "--root", str(root), "--control", "127.0.0.1:0", "--clock", "manual"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        with contextlib.ExitStack() as stack:
            stack.callback(run.terminate)
            said = {record["kind"]: record for record in until_ready(run)}
            there = said["control-address"]
            assert said["control-socket"]["path"] == str(root / "control.sock")
            with open(there["token_path"]) as file:  # noqa: PTH123  # as a script would
                token = file.read().strip()
            client = MockKubeletClient(there["address"], token=token)
            before = client.clock.monotonic()
            client.clock.advance(300)
            assert client.clock.monotonic() == before + 300
            assert MockKubeletClient(root).root == root
        assert run.wait(20) == 0
        run.stdout.read()
    assert not (root / "control.sock").exists()
    assert not (root / "control.token").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--clock", "manual"], "--clock requires --control"),
        (["--control-allow-remote"], "--control-allow-remote requires --control"),
        (["--control", "0.0.0.0:1"], "use 127.0.0.1; or add --control-allow-remote"),
        (["--control", "x"], "--control: invalid address 'x'"),
    ],
)
def test_flags_that_require_others_are_rejected(flags, text, capsys):
    assert main(["run", *flags]) == 2
    assert text in capsys.readouterr().err


def test_missing_extra_is_an_error(monkeypatch, capsys):
    for name in ("server", "http_server"):
        monkeypatch.delitem(sys.modules, f"devicemanager.control.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["run", "--control"]) == 2
    assert "pip install 'kubelet-devicemanager[control]'" in capsys.readouterr().err
