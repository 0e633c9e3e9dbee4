"""Every line in the shell blocks of docs/control-api.md runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import pytest

from devicemanager.cli import main
from devicemanager.control import ControlServer
from tests.paths import ROOT

PAGE = ROOT / "docs" / "control-api.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_shell_blocks_run(mock_kubelet, simulated_plugin, monkeypatch, capfd):
    """The kubelet is the one that the page starts first; another test parses that line."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert sum(line.startswith("devicemanager run ") for line in lines) == 2
    monkeypatch.chdir(ROOT)
    simulated_plugin("vendor.com/gpu", 4)
    root = str(mock_kubelet.root)
    with ControlServer(mock_kubelet):
        for line in lines:
            words = [
                word.replace("./node", root).replace("node/control.sock", f"{root}/control.sock")
                for word in shlex.split(line)
            ]
            match words:
                case ["export", setting]:
                    monkeypatch.setenv(*setting.split("="))
                case ["devicemanager", "run", *_]:
                    pass
                case ["devicemanager", *arguments]:
                    assert main(arguments) == 0, line
                case ["curl", *_]:
                    subprocess.run(words, check=True)
                case _:
                    raise AssertionError(f"this test cannot run {line!r}")
    said = capfd.readouterr().out
    assert "pod ml/train admitted" in said
    assert '"admitted":true' in said
