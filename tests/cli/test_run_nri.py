"""``devicemanager run --nri``."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading

import pytest

from devicemanager.cli import main
from devicemanager.control import MockKubeletClient
from devicemanager.kubelet.nri.connection import Connection
from protos import nri_v1alpha1 as nri
from tests.cli.records import until_ready

RUN = [sys.executable, "-m", "devicemanager.cli", "run", "-o", "json", "--durability", "process"]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "uid": "p"},
    "spec": {"containers": [{"name": "main", "image": "i"}]},
}


def _adjust(request):
    response = nri.CreateContainerResponse()
    response.adjust.linux.resources.cpu.cpus = "0-3"
    return response


@pytest.mark.timeout(120)
def test_plugin_adjusts_the_containers_of_a_kubelet(tmp_path):
    flags = ["--nri", "--control", "--root", str(tmp_path)]
    with subprocess.Popen([*RUN, *flags], stdout=subprocess.PIPE, text=True) as run:
        said = {record["kind"]: record for record in until_ready(run)}
        assert said["nri-socket"]["path"] == str(tmp_path / "nri" / "nri.sock")
        texts = (json.loads(line)["message"] for line in run.stdout)
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(said["nri-socket"]["path"])
        handlers = {
            "Configure": lambda request: nri.ConfigureResponse(events=1 << 3),
            "Synchronize": lambda request: nri.SynchronizeResponse(),
            "CreateContainer": _adjust,
        }
        plugin = Connection(connected, handlers, serves="Plugin", calls="Runtime")
        threading.Thread(target=plugin.serve, daemon=True).start()
        with contextlib.closing(plugin):
            request = nri.RegisterPluginRequest(plugin_name="dra.cpu", plugin_idx="00")
            plugin.call("RegisterPlugin", request, 10)
            assert "NRI plugin 00-dra.cpu connected" in texts
            MockKubeletClient(said["control-socket"]["path"]).admit(POD)
            adjusted = (
                "pod default/p container main was adjusted by NRI plugin 00-dra.cpu: cpus 0-3"
            )
            assert adjusted in texts
        run.terminate()
        assert run.wait(30) == 0
        run.stdout.read()
    assert not (tmp_path / "nri" / "nri.sock").exists()


def test_nri_needs_a_root(capsys):
    assert main(["run", "--nri"]) == 2
    assert "--nri requires --root" in capsys.readouterr().err


def test_command_in_a_container_finds_the_socket_of_nri(tmp_path):
    (tmp_path / "device-plugins").mkdir()
    words = [sys.executable, "-m", "devicemanager.cli", "exec", "--root", str(tmp_path), "--"]
    words += ["sh", "-c", "ls /var/run/nri 2>/dev/null"]
    for names in ("", "nri.sock\n"):
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if not names and "nri.sock" in done.stdout:
            pytest.skip("this machine has a socket of NRI")
        assert done.stdout == names
        (tmp_path / "nri").mkdir(exist_ok=True)
        (tmp_path / "nri/nri.sock").touch()
