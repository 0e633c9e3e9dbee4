"""Requests of the API server to a node, at the address that the node announces."""

from urllib.error import HTTPError

import pytest

from tests.cluster.peers.processes import free_port, stop

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture
def peer(make_peer):
    return make_peer("real")


def test_logs_are_served_through_the_api_server(join_command, peer, control_plane):
    """As for `kubectl logs`. Each of the two nodes has its own address."""
    pair = control_plane.serving_pair("nodes")
    words = ["--prefix", peer.name, "--nodes", "2", "--simulate", "vendor.com/gpu=1"]
    words += ["--http", f"0.0.0.0:{free_port()}", "--http-allow-remote"]
    words += ["--http-certificate", pair.certificate, pair.key]
    process = join_command(*words, "--label", f"group={peer.name}")
    names = [f"{peer.name}-{index}" for index in range(2)]
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
    stop(process)
    assert process.returncode == 0
