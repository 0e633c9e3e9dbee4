"""The control API of nodes: every operation shows at the API server, and who may ask."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess

import pytest

from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.control.nodes.operations import NOT_HERE, OPERATIONS, document
from devicemanager.control.nodes.server import NodesControlServer
from devicemanager.control.transport import transport_to
from tests.cluster.world import GPU
from tests.control.nodes.inprocess import SteeredWorld, two_nodes
from tests.control.test_operations import conforms
from tests.paths import ROOT

PAGE = ROOT / "docs" / "cluster.md"
ROWS = {each.name: each for each in OPERATIONS}


@pytest.fixture
def world():
    return two_nodes()


@pytest.fixture
def server(world, tmp_path):
    with NodesControlServer(SteeredWorld(world), tmp_path) as server:
        yield server


@pytest.fixture
def ask(world, server):
    """An operation by its name, and all that comes of it; its answer is as the document says."""
    transport = transport_to(server.socket_path)

    def ask(name, *path, query="", body=None):
        row = ROWS[name]
        target = row.path
        for parameter, value in zip(row.parameters, path, strict=True):
            target = target.replace(f"{{{parameter}}}", value)
        data = None if body is None else json.dumps(body).encode()
        reply = transport.ask(row.method, target + query, data)
        assert reply.status == row.status, reply.body
        conforms(row, reply.status, reply.kind, reply.body, document)
        world.settle()
        return json.loads(reply.body) if reply.body else None

    return ask


def test_every_public_member_of_a_node_is_in_the_table_or_has_a_reason(world):
    members = {name for name in dir(world.nodes["a"]) if not name.startswith("_")}
    in_table = {member for each in OPERATIONS for member in each.members}
    assert members - in_table - set(NOT_HERE) == set(), "add an operation, or a reason"
    assert in_table - members == set()
    assert set(NOT_HERE) - members == set()
    assert in_table & set(NOT_HERE) == set()
    assert all(len(reason) > 20 for reason in NOT_HERE.values())


def allocatable(world, name="a"):
    return world.node(name)["status"]["allocatable"][GPU]


def test_nodes_are_listed_and_shown(world, ask):
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


def test_devices_fail_and_are_lost(world, ask):
    device = {"resource": GPU, "device": "gpu-1"}
    for breaks, mends in (("failDevice", "recoverDevice"), ("loseDevice", "returnDevice")):
        ask(breaks, "a", body=device)
        assert allocatable(world) == "3"
        ask(mends, "a", body=device)
        assert allocatable(world) == "4"
    assert allocatable(world, "b") == "4"


def test_plugins_go_and_list_nothing(world, ask):
    ask("stopPlugin", "a", body={"resource": GPU})
    assert allocatable(world) == "0"
    ask("startPlugin", "a", body={"resource": GPU})
    assert allocatable(world) == "4"
    ask("zeroCapacity", "a", body={"resource": GPU})
    assert world.node("a")["status"]["capacity"][GPU] == "0"
    ask("zeroCapacity", "a", body={"resource": GPU, "zero": False})
    assert world.node("a")["status"]["capacity"][GPU] == "4"


def test_conditions(world, ask):
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


def test_a_silent_node_says_nothing_until_it_speaks_again(world, ask):
    ask("silence", "a")
    assert world.heartbeat.silent == {"a"}
    assert ask("getNode", "a")["silent"] is True
    ask("failDevice", "a", body={"resource": GPU, "device": "gpu-0"})
    assert allocatable(world) == "4"
    ask("silence", "a", body={"silent": False})
    assert (world.heartbeat.silent, allocatable(world)) == (set(), "3")


def test_a_node_starts_anew(world, ask):
    uid = world.run("train", "a")
    ask("restartKubelet", "a")
    assert world.status("train")["containerStatuses"][0]["restartCount"] == 0
    ask("rebootNode", "a")
    assert [each["message"] for each in world.events("Rebooted")] == [
        "Node a has been rebooted, boot id: 1"
    ]
    assert ask("getNode", "a")["pod_list"][0]["uid"] == uid


def test_pods_are_evicted_and_containers_end(world, ask):
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


def test_requests_that_cannot_be(world, server):
    uid = world.run("train", "a")
    transport = transport_to(server.socket_path)
    for method, path, body, status, detail in (
        ("GET", "/v1/nodes/c", None, 404, "there is no node 'c' here: /v1/nodes lists those"),
        ("POST", "/v1/nodes/c/reboot", None, 404, "there is no node 'c' here"),
        ("GET", "/v1/nodes/" + "c" * 2000, None, 404, "there is no node 'ccc"),
        ("GET", "/v1/nodes/a%2Fb", None, 404, "there is no node 'a/b' here"),
        ("POST", "/v1/nodes/a/pods/x/evict", None, 404, "no pod with UID 'x' is on node a"),
        ("POST", f"/v1/nodes/b/pods/{uid}/evict", None, 404, "is on node b"),
        ("POST", "/v1/nodes/a/fail-device", b"{}", 400, "required field `resource`"),
        ("POST", "/v1/nodes/a/fail-device", b'{"x": 1}', 400, "unknown field `x`"),
        ("POST", "/v1/nodes/a/pressure", b'{"conditions": ["Heat"]}', 400, "'Heat'"),
        ("POST", "/v1/nodes/a/pressure", b"\xff", 400, "body: "),
        ("POST", "/v1/nodes/a/reboot", b"{}", 400, "takes no body"),
        ("POST", "/v1/nodes/a/not-ready", b'{"message": "%s"}' % (b"x" * 1001), 400, "<= 1000"),
        ("DELETE", "/v1/nodes/a?how=never", None, 400, "query: how"),
        ("DELETE", "/v1/nodes/a?when=now", None, 400, "there is no parameter 'when' here"),
        ("DELETE", "/v1/nodes", None, 405, "DELETE is not possible on /v1/nodes: GET is"),
        ("GET", "/v1/node", None, 404, "nothing is at '/v1/node': /openapi.json lists"),
        (
            *("POST", "/v1/nodes/a/fail-device"),
            json.dumps({"resource": "vendor.com/tpu", "device": "x"}).encode(),
            *(409, "vendor.com/tpu"),
        ),
        (
            *("POST", f"/v1/nodes/a/pods/{uid}/containers/none/exit"),
            *(None, 409, "none"),
        ),
        ("POST", "/v1/nodes/a/not-ready", b"x" * (5 << 20), 413, "more than 4194304 bytes"),
    ):
        reply = transport.ask(method, path, body)
        problem = json.loads(reply.body)
        assert (reply.status, reply.kind) == (status, "application/problem+json"), (path, problem)
        assert detail in problem["detail"], (path, problem["detail"])
        assert "\n" not in problem["detail"]
    assert len(world.nodes) == 2
    served = json.loads(transport.ask("GET", "/openapi.json").body)
    assert served == json.loads(json.dumps(document()))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_requests_of_the_page_are_met(world, server):
    """docs/cluster.md shows them."""
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


def test_over_tcp_a_token_is_needed(world, tmp_path):
    with NodesControlServer(SteeredWorld(world), tmp_path, tcp="127.0.0.1:0") as server:
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
    with pytest.raises(ValueError, match="can be reached from other hosts"):
        NodesControlServer(SteeredWorld(world), tmp_path, tcp="0.0.0.0:0")


def test_a_mistake_of_ours_is_told(world, ask, server, caplog, monkeypatch):
    def broken(self):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(ClusterNode, "reboot", broken)
    reply = transport_to(server.socket_path).ask("POST", "/v1/nodes/a/reboot", None)
    assert reply.status == 500
    assert "unexpected ZeroDivisionError: oops (a bug)" in json.loads(reply.body)["detail"]
    assert "control API of the nodes: unexpected ZeroDivisionError" in caplog.text
