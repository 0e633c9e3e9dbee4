"""``devicemanager run --http``."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import pytest

from devicemanager.cli import main, server_options
from devicemanager.cli.kubelet_log import KubeletLog
from devicemanager.control import ControlServer
from devicemanager.observe.web import HttpServer
from tests.cli.records import until_ready
from tests.observe.web.conftest import fetch

RUN = [sys.executable, "-m", "devicemanager.cli", "run", "-o", "json"]


def test_http_endpoints_of_a_running_kubelet(make_mock_kubelet):
    root = make_mock_kubelet(start=False).root / "r"
    simulated = ["--simulate", "vendor.com/gpu=2"]
    command = [*RUN, "--root", str(root), "--http", "127.0.0.1:0", "--control", *simulated]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        with contextlib.ExitStack() as stack:
            stack.callback(run.terminate)
            said = {record["kind"]: record for record in until_ready(run)}
            url = said["http-address"]["address"]
            assert said["page"]["address"] == f"{url}/"
            assert said["control-address"]["address"] == url
            address = url.removeprefix("http://")
            assert fetch(address, "/healthz").text == "ok"
            # The metrics include the first registration.
            text = fetch(address, "/metrics").text
            counted = 'kubelet_device_plugin_registration_total{resource_name="vendor.com/gpu"} 1.0'
            assert counted in text.splitlines()
            token = (root / "control.token").read_text().strip()
            assert token not in json.dumps(said)
            broken = {"resource": "vendor.com/gpu", "id": "gpu-mock-0", "health": "Unhealthy"}
            bearer = {"Authorization": f"Bearer {token}"}
            path, body = "/page/device-health", json.dumps(broken)
            assert fetch(address, path, bearer, "POST", body).status == 204
            assert fetch(address, path, {}, "POST", body).status == 401
        assert run.wait(20) == 0
        run.stdout.read()


@pytest.mark.parametrize("shows", [True, False])
def test_token_is_printed_only_on_a_terminal(mock_kubelet, monkeypatch, capsys, shows):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: shows)
    control = ControlServer(mock_kubelet)
    with HttpServer(mock_kubelet, "127.0.0.1:0", control=control) as server:
        token = control.token_path.read_text().strip()
        server_options.report_http(server, control, KubeletLog(False))
        server_options.report_http(server, None, KubeletLog(False))
    with_control, without = (
        line.split()[-1] for line in capsys.readouterr().out.splitlines() if " page: " in line
    )
    assert with_control == without + f"#token={token}" * shows


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--http-allow-remote"], "--http-allow-remote requires --http"),
        (["--http", "0.0.0.0:1"], "use 127.0.0.1; or add --http-allow-remote"),
        (["--http", "192.0.2.1:1", "--http-allow-remote"], "cannot listen on 192.0.2.1:1"),
        (
            ["--http", "0.0.0.0:1", "--http-allow-remote", "--control"],
            "expose the control API to other hosts: to allow this, add --control-allow-remote",
        ),
        (["--http", "x"], "--http: invalid address 'x'"),
    ],
)
def test_flags_that_require_others_are_rejected(flags, text, capsys):
    assert main(["run", *flags]) in (1, 2)
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_missing_extra_is_an_error(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("devicemanager.observe.metrics.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "devicemanager.observe.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["run", "--http"]) == 2
    assert "pip install 'kubelet-devicemanager[http]'" in capsys.readouterr().err
