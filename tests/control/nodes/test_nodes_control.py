"""The control API of nodes: the effect of each operation at the API server, and access."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess

import pytest

from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.control.api_client import transport_to
from devicemanager.control.nodes.operations import TABLE
from devicemanager.control.nodes.server import NodesControlServer
from devicemanager.control.openapi import document
from tests.cluster.world import GPU
from tests.control.nodes.inprocess import ControlledWorld, two_nodes
from tests.control.test_operations import conforms
from tests.paths import ROOT

PAGE = ROOT / "docs" / "cluster.md"
NO_OPERATION = {
    "options": "given to the node when it joins; for `join`, its flags",
    "is_over": "a node that has left is not listed any more",
    "join": "the program that created the node does that",
    "do": "calls a Python function",
    "say": "a line about the node itself, for people",
    "refresh": "every operation that changes the status does it",
    "on_node_event": "called by the watch of the API server",
    "on_pod_event": "called by the watch of the API server",
    "on_pod_list": "called by the watch of the API server",
    "verify": "called by the watch of the API server",
    "record": "an event of the node itself",
}
"""Public members of ClusterNode without an operation, and why."""


@pytest.fixture
def world():
    return two_nodes()


@pytest.fixture
def server(world, tmp_path):
    with NodesControlServer(ControlledWorld(world), tmp_path) as server:
        yield server


@pytest.fixture
def ask(world, server):
    """Send the request of an operation, check its answer and wait for the effects."""
    transport = transport_to(server.socket_path)

    def ask(name, *path, query="", body=None):
        row = TABLE[name]
        target = row.path
        for parameter, value in zip(row.parameters, path, strict=True):
            target = target.replace(f"{{{parameter}}}", value)
        data = None if body is None else json.dumps(body).encode()
        reply = transport.ask(row.method, target + query, data)
        assert reply.status == row.status, reply.body
        conforms(TABLE, row, reply.status, reply.kind, reply.body)
        world.settle()
        return json.loads(reply.body) if reply.body else None

    return ask


def test_every_public_member_of_a_node_has_an_operation_or_a_reason(world):
    members = {name for name in dir(world.nodes["a"]) if not name.startswith("_")}
    in_table = {member for each in TABLE for member in each.members}
    assert members - in_table - set(NO_OPERATION) == set(), "add an operation, or a reason"
    assert in_table - members == set()
    assert set(NO_OPERATION) - members == set()
    assert in_table & set(NO_OPERATION) == set()
    assert all(len(reason) > 20 for reason in NO_OPERATION.values())


def allocatable(world, name="a"):
    return world.node(name)["status"]["allocatable"][GPU]


def test_list_and_show_nodes(world, ask):
    uid = world.run("train", "a", gpus=2)
    world.run("more", "a", gpus=3)
    world.annotate("not-ready; memory-pressure", "b")
    first, second = ask("listNodes")["items"]
    assert first == {
        "name": "a",
        "ready": True,
        "silent": False,
        "pressures": [],
        "resources": {GPU: {"capacity": 4, "allocatable": 4, "held": 2}},
        "pods": {"Failed": 1, "Running": 1},
        "faults": [],
    }
    assert (second["name"], second["ready"]) == ("b", False)
    assert second["pressures"] == ["MemoryPressure"]
    assert second["faults"] == ["not-ready", "memory-pressure"]
    shown = ask("getNode", "a")
    assert first.items() <= shown.items()
    assert shown["uid"] == world.node("a")["metadata"]["uid"]
    assert [each["type"] for each in shown["conditions"]][-1] == "Ready"
    train, more = shown["pod_list"]
    assert (train["uid"], train["phase"]) == (uid, "Running")
    assert train["devices"] == {"main": {GPU: ["gpu-0", "gpu-1"]}}
    assert (more["name"], more["reason"]) == ("more", "UnexpectedAdmissionError")
    assert "Requested: 3, Available: 2" in more["message"]
    assert more["devices"] == {}


def test_devices_fail_and_recover(world, ask):
    device = {"resource": GPU, "device": "gpu-1"}
    for fail, recover in (("failDevice", "recoverDevice"), ("loseDevice", "returnDevice")):
        ask(fail, "a", body=device)
        assert allocatable(world) == "3"
        ask(recover, "a", body=device)
        assert allocatable(world) == "4"
    assert allocatable(world, "b") == "4"


def test_plugins_stop_and_advertise_nothing(world, ask):
    ask("stopPlugin", "a", body={"resource": GPU})
    assert allocatable(world) == "0"
    ask("startPlugin", "a", body={"resource": GPU})
    assert allocatable(world) == "4"
    ask("zeroCapacity", "a", body={"resource": GPU})
    assert world.node("a")["status"]["capacity"][GPU] == "0"
    ask("zeroCapacity", "a", body={"resource": GPU, "zero": False})
    assert world.node("a")["status"]["capacity"][GPU] == "4"


def test_conditions_are_set_and_cleared(world, ask):
    ask("setNotReady", "a", body={"message": "the fan is off"})
    assert world.condition(name="a")["message"] == "the fan is off"
    assert ask("getNode", "a")["ready"] is False
    ask("setNotReady", "a", body={"message": ""})
    assert world.condition(name="a")["status"] == "True"
    ask("setPressure", "a", body={"conditions": ["DiskPressure", "MemoryPressure"]})
    assert world.condition("DiskPressure", "a")["status"] == "True"
    world.run("best-effort", "a", gpus=0)
    assert world.status("best-effort")["reason"] == "Evicted"
    ask("setPressure", "a", body={"conditions": []})
    assert world.condition("MemoryPressure", "a")["status"] == "False"


def test_silent_node_stops_reporting_until_it_resumes(world, ask):
    ask("silence", "a")
    assert world.leases.paused == {"a"}
    assert ask("getNode", "a")["silent"] is True
    ask("failDevice", "a", body={"resource": GPU, "device": "gpu-0"})
    assert allocatable(world) == "4"
    ask("silence", "a", body={"silent": False})
    assert (world.leases.paused, allocatable(world)) == (set(), "3")


def test_restart_and_reboot_keep_pods(world, ask):
    uid = world.run("train", "a")
    ask("restartKubelet", "a")
    assert world.status("train")["containerStatuses"][0]["restartCount"] == 0
    ask("rebootNode", "a")
    assert [each["message"] for each in world.events("Rebooted")] == [
        "Node a has been rebooted, boot id: 1"
    ]
    assert ask("getNode", "a")["pod_list"][0]["uid"] == uid


def test_evict_pods_and_exit_containers(world, ask):
    evicted = world.run("evicted", "a")
    ask("evictPod", "a", evicted, body={"resource": "nodefs"})
    assert world.status("evicted")["reason"] == "Evicted"
    assert world.status("evicted")["message"] == "The node was low on resource: nodefs. "
    ended = world.run("ended", "a", restartPolicy="Never")
    ask("exitContainer", "a", ended, "main", body={"exit_code": 3, "reason": "OOMKilled"})
    (main,) = world.status("ended")["containerStatuses"]
    assert main["state"]["terminated"]["exitCode"] == 3
    assert main["state"]["terminated"]["reason"] == "OOMKilled"
    assert world.status("ended")["phase"] == "Failed"


def test_nodes_leave(world, ask):
    ask("leave", "a")
    assert [each["metadata"]["name"] for each in world.all("nodes")] == ["b"]
    ask("leave", "b", query="?how=keep")
    assert [each["metadata"]["name"] for each in world.all("nodes")] == ["b"]
    assert ask("listNodes")["items"] == []


def test_invalid_requests_are_problems(world, server):
    uid = world.run("train", "a")
    transport = transport_to(server.socket_path)
    for method, path, body, status, detail in (
        (
            "GET",
            "/v1/nodes/c",
            None,
            404,
            "unknown node 'c': use one of the nodes that /v1/nodes lists",
        ),
        ("POST", "/v1/nodes/c/reboot", None, 404, "unknown node 'c'"),
        ("GET", "/v1/nodes/" + "c" * 2000, None, 404, "unknown node 'ccc"),
        ("GET", "/v1/nodes/a%2Fb", None, 404, "unknown node 'a/b'"),
        (
            "POST",
            "/v1/nodes/a/pods/x/evict",
            None,
            404,
            "unknown pod UID 'x': /v1/nodes/a lists the pods of the node",
        ),
        ("POST", f"/v1/nodes/b/pods/{uid}/evict", None, 404, "lists the pods of the node"),
        ("POST", "/v1/nodes/a/fail-device", b"{}", 400, "required field `resource`"),
        ("POST", "/v1/nodes/a/fail-device", b'{"x": 1}', 400, "unknown field `x`"),
        ("POST", "/v1/nodes/a/pressure", b'{"conditions": ["Heat"]}', 400, "'Heat'"),
        ("POST", "/v1/nodes/a/pressure", b"\xff", 400, "body: "),
        ("POST", "/v1/nodes/a/reboot", b"{}", 400, "unexpected body: send POST"),
        ("POST", "/v1/nodes/a/not-ready", b'{"message": "%s"}' % (b"x" * 1001), 400, "<= 1000"),
        ("DELETE", "/v1/nodes/a?how=never", None, 400, "query: how"),
        ("DELETE", "/v1/nodes/a?when=now", None, 400, "unknown parameter 'when': use one of how"),
        ("DELETE", "/v1/nodes", None, 405, "/v1/nodes does not support DELETE: use GET"),
        ("GET", "/v1/node", None, 404, "unknown path '/v1/node': /openapi.json lists"),
        (
            *("POST", "/v1/nodes/a/fail-device"),
            json.dumps({"resource": "vendor.com/tpu", "device": "x"}).encode(),
            *(409, "vendor.com/tpu"),
        ),
        (
            *("POST", f"/v1/nodes/a/pods/{uid}/containers/none/exit"),
            *(None, 409, "none"),
        ),
        ("POST", "/v1/nodes/a/not-ready", b"x" * (5 << 20), 413, "the limit is 4194304 bytes"),
    ):
        reply = transport.ask(method, path, body)
        problem = json.loads(reply.body)
        assert (reply.status, reply.kind) == (status, "application/problem+json"), (path, problem)
        assert detail in problem["detail"], (path, problem["detail"])
        assert "\n" not in problem["detail"]
    assert len(world.nodes) == 2
    served = json.loads(transport.ask("GET", "/openapi.json").body)
    assert served == json.loads(json.dumps(document(TABLE)))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_requests_in_docs_succeed(world, server):
    """Those of docs/cluster.md."""
    world.join("virtual-3")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("curl ")]
    assert len(lines) == 5
    for line in lines:
        words = [
            word.replace("./nodes/control.sock", str(server.socket_path))
            for word in shlex.split(line)
        ]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        world.settle()
    assert "virtual-3" not in world.nodes
    assert world.condition(name="virtual-3")["message"] == "node is shutting down"


def test_tcp_requires_the_token(world, tmp_path):
    with NodesControlServer(ControlledWorld(world), tmp_path, tcp="127.0.0.1:0") as server:
        host, _, port = server.address.rpartition(":")
        token = server.token_path.read_text().strip()
        assert server.token_path.stat().st_mode & 0o777 == 0o600

        def status(*headers):
            with socket.create_connection((host, int(port)), timeout=20) as client:
                lines = ["GET /v1/nodes HTTP/1.1", *headers, "Connection: close", "", ""]
                client.sendall("\r\n".join(lines).encode())
                return int(client.makefile("rb").readline().split()[1])

        us, bearer = f"Host: {server.address}", f"Authorization: Bearer {token}"
        assert status(us, bearer) == 200
        assert status(us) == 401
        assert status(us, bearer + "x") == 401
        assert status(f"Host: evil.example:{port}", bearer) == 403
        assert status(us, bearer, "Origin: http://evil.example") == 403
    assert not server.token_path.exists()
    with pytest.raises(ValueError, match=r"^other hosts can reach"):
        NodesControlServer(ControlledWorld(world), tmp_path, tcp="0.0.0.0:0")


def test_unexpected_error_is_logged_and_answered(world, ask, server, caplog, monkeypatch):
    def broken(self):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(ClusterNode, "reboot", broken)
    reply = transport_to(server.socket_path).ask("POST", "/v1/nodes/a/reboot", None)
    assert reply.status == 500
    assert "unexpected ZeroDivisionError: oops (a bug)" in json.loads(reply.body)["detail"]
    assert "control API of the nodes: unexpected ZeroDivisionError" in caplog.text
