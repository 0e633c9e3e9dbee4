"""Requests of the API server to a node, at the address that the node announces."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError

import pytest

COMMAND = Path(sys.executable).with_name("devicemanager")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


def free_port():
    with socket.socket() as found:
        found.bind(("0.0.0.0", 0))
        return found.getsockname()[1]


def test_logs_are_served_through_the_api_server(make_peer, control_plane):
    """As for `kubectl logs`. Each of the two nodes has its own address."""
    peer = make_peer("real")
    pair = control_plane.serving_pair("nodes")
    command = [COMMAND, "join", "--kubeconfig", peer.kubeconfig, "--prefix", peer.name]
    command += ["--nodes", "2", "--simulate", "vendor.com/gpu=1", "--label", f"group={peer.name}"]
    command += ["--http", f"0.0.0.0:{free_port()}", "--http-allow-remote"]
    command += ["--http-certificate", pair.certificate, pair.key]
    names = [f"{peer.name}-{index}" for index in range(2)]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            peer.ready(*names)
            for index, name in enumerate(names):
                peer.pod(f"p{index}", nodeName=name)
                peer.phase(f"p{index}", "Running")
            for index in range(2):
                path = f"/api/v1/namespaces/{peer.name}/pods/p{index}/log"
                assert control_plane.read(path).endswith("Z container main started\n")
                assert control_plane.read(f"{path}?tailLines=0") == ""
                assert control_plane.read(f"{path}?follow=true&container=main")
                with pytest.raises(HTTPError) as raised:
                    control_plane.read(f"{path}?previous=true")
                message = raised.value.read().decode()
                assert "previous terminated container" in message
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    assert process.returncode == 0
