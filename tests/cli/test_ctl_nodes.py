"""``devicemanager ctl nodes`` with nodes in this process."""

from __future__ import annotations

import json
import re
import shlex
from typing import get_args

import pytest
import yaml

from devicemanager.cli import ctl_nodes, main
from devicemanager.cli.options import CommandParser
from devicemanager.control import ControlError, ControlServer
from devicemanager.control.api_client import Reply, Transport
from devicemanager.control.nodes.operations import TABLE
from devicemanager.control.nodes.protocol import Leave
from devicemanager.control.nodes.server import NodesControlServer
from devicemanager.core.nodestatus.conditions import Pressure
from devicemanager.testing import pod_manifest
from tests.cluster.world import GPU
from tests.control.nodes.inprocess import DRIVER, ControlledWorld, InProcess, two_nodes
from tests.paths import ROOT
from tests.test_documentation import sessions

PAGE = ROOT / "docs" / "cluster.md"


@pytest.fixture
def world():
    return two_nodes()


@pytest.fixture
def api(world, monkeypatch):
    """Answers requests in place of a server."""
    api = InProcess(world)
    monkeypatch.setattr(Transport, "ask", lambda _, *args, **options: api.ask(*args, **options))
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", "/nowhere")
    return api


@pytest.fixture
def ctl(world, capsys):
    """Run an action, and wait for its effects."""

    def run(*words, status=0):
        capsys.readouterr()
        assert main(["ctl", *words]) == status, capsys.readouterr()
        world.settle()
        said = capsys.readouterr()
        return said.err if status else said.out

    return run


@pytest.fixture
def nodes(api, ctl):
    return lambda *words, status=0: ctl("nodes", *words, status=status)


def allocatable(world, name="a"):
    return world.node(name)["status"]["allocatable"][GPU]


# In this order; pods `ended` and `evicted` are on node a.
ACTIONS = {
    "listNodes": "list",
    "getNode": "show a",
    "failDevice": f"fail-device a {GPU} gpu-3",
    "recoverDevice": f"recover-device a {GPU} gpu-3",
    "loseDevice": f"lose-device a {GPU} gpu-3",
    "returnDevice": f"return-device a {GPU} gpu-3",
    "stopPlugin": f"stop-plugin b {GPU}",
    "startPlugin": f"start-plugin b {GPU}",
    "zeroCapacity": f"zero-capacity b {GPU}",
    "failPrepare": f"fail-prepare b {DRIVER} --times 2",
    "failUnprepare": f"fail-unprepare b {DRIVER}",
    "scaleKind": "scale gpu=3",
    "delayPrepare": f"delay-prepare b {DRIVER} 5",
    "setNotReady": "not-ready b",
    "setPressure": "pressure b --condition PIDPressure",
    "silence": "silent b",
    "exitContainer": "exit-container a ended main",
    "evictPod": "evict a evicted",
    "restartKubelet": "restart b",
    "rebootNode": "reboot b",
    "leave": "leave a",
}


def test_every_operation_has_an_action(world, api, nodes):
    assert set(ACTIONS) == {each.name for each in TABLE}, "add an action"
    world.run("ended", "a")
    world.run("evicted", "a")
    for name, words in ACTIONS.items():
        nodes(*words.split())
        method, path = api.asked[-1]
        form = re.sub(r"{[a-z]+}", "[^/]+", TABLE[name].path)
        assert method == TABLE[name].method, name
        assert re.fullmatch(form, path.partition("?")[0]), name


def test_every_action_has_an_operation():
    assert sorted(parsers()) == sorted(words.split()[0] for words in ACTIONS.values())


def parsers():
    """The parsers of the actions, by name."""
    subparsers = CommandParser().add_subparsers(parser_class=CommandParser)
    ctl_nodes.add(subparsers)
    return subparsers.choices


def test_list_formats(world, nodes):
    world.run("train", "a", gpus=2)
    world.run("more", "a", gpus=3)
    world.annotate("not-ready; memory-pressure", "b")
    nodes("silent", "b")
    assert nodes("list").splitlines() == [
        "NAME  STATUS                          PODS  DEVICES",
        f"a     Ready                           2     {GPU}=2/4",
        f"b     NotReady,MemoryPressure,Silent  0     {GPU}=0/4",
    ]
    assert nodes("list", "-o", "name") == "a\nb\n"
    first, second = nodes("list", "-o", "wide").splitlines()[1:]
    assert first.split()[4:] == [f"{GPU}=4", "Failed=1,Running=1", "-"]
    assert second.split(maxsplit=6)[5:] == ["-", "not-ready; memory-pressure"]
    shown = json.loads(nodes("list", "b", "-o", "json"))
    assert shown["schema"] == "devicemanager.cluster-nodes/v1"
    assert [each["name"] for each in shown["items"]] == ["b"]
    assert shown == yaml.safe_load(nodes("list", "-o", "yaml", "b"))


def test_show_formats(world, nodes):
    uid = world.run("train", "a", gpus=2)
    world.run("more", "a", gpus=3)
    world.annotate("disk-pressure", "a")
    head, conditions, resources, pods = nodes("show", "a").split("\n\n")
    assert head == f"node a ({world.nodes['a'].uid}): Ready,DiskPressure\n  fault disk-pressure"
    assert [line.split()[:2] for line in conditions.splitlines()] == [
        ["CONDITION", "STATUS"],
        ["MemoryPressure", "False"],
        ["DiskPressure", "True"],
        ["PIDPressure", "False"],
        ["Ready", "True"],
    ]
    assert [line.split() for line in resources.splitlines()] == [
        ["RESOURCE", "CAPACITY", "ALLOCATABLE", "ALLOCATED"],
        [GPU, "4", "4", "2"],
    ]
    headings, train, more = pods.splitlines()
    assert headings.split()[:3] == ["NAMESPACE", "NAME", "STATUS"]
    assert train.split() == ["default", "train", "Running", "-", "gpu-0,gpu-1", uid, "-"]
    assert more.split()[:5] == ["default", "more", "Failed", "UnexpectedAdmissionError", "-"]
    assert more.endswith("Available: 2, which is unexpected")
    data = json.loads(nodes("show", "a", "-o", "json"))
    assert data["schema"] == "devicemanager.cluster-node/v1"
    assert data == yaml.safe_load(nodes("show", "a", "-o", "yaml"))


def test_device_and_plugin_actions(world, nodes):
    assert nodes("fail-device", "a", GPU, "gpu-1", "gpu-3") == (
        f"node a: device {GPU}/gpu-1 failed\nnode a: device {GPU}/gpu-3 failed\n"
    )
    assert allocatable(world) == "2"
    nodes("recover-device", "a", GPU, "gpu-1", "gpu-3")
    nodes("lose-device", "a", GPU, "gpu-1")
    assert allocatable(world) == "3"
    nodes("return-device", "a", GPU, "gpu-1")
    assert allocatable(world) == "4"
    assert nodes("stop-plugin", "a", GPU) == f"node a: plugin {GPU} stopped\n"
    assert allocatable(world) == "0"
    assert nodes("start-plugin", "a", GPU) == f"node a: plugin {GPU} started\n"
    assert nodes("zero-capacity", "a", GPU) == f"node a: plugin {GPU} advertises no devices\n"
    assert world.node("a")["status"]["capacity"][GPU] == "0"
    nodes("zero-capacity", "a", GPU, "--off")
    assert world.node("a")["status"]["capacity"][GPU] == "4"


def test_condition_actions(world, nodes):
    assert nodes("not-ready", "a", "b") == "node a: set to not ready\nnode b: set to not ready\n"
    assert world.condition(name="a")["message"] == "set to not ready by a fault"
    nodes("not-ready", "b", "--message", "the fan is off")
    assert world.condition(name="b")["message"] == "the fan is off"
    nodes("not-ready", "a", "--off")
    assert world.condition(name="a")["status"] == "True"
    words = ["--condition", "DiskPressure", "--condition", "MemoryPressure"]
    assert nodes("pressure", "a", *words) == "node a: DiskPressure,MemoryPressure\n"
    assert world.condition("DiskPressure", "a")["status"] == "True"
    assert nodes("pressure", "a", "--off") == "node a: no pressure\n"
    assert world.condition("MemoryPressure", "a")["status"] == "False"
    nodes("silent", "a", "b")
    nodes("silent", "b", "--off")
    assert world.leases.paused == {"a"}


def test_pod_actions(world, nodes):
    world.run("train", "a")
    uid = world.run("more", "a")
    said = nodes("evict", "a", "default/train", uid, "--resource", "nodefs")
    assert said == "node a: pod default/train evicted\nnode a: pod default/more evicted\n"
    for name in ("train", "more"):
        assert world.status(name)["message"] == "The node was low on resource: nodefs. "
    world.run("ended", "a", restartPolicy="Never")
    words = ["--exit-code", "3", "--reason", "OOMKilled"]
    assert nodes("exit-container", "a", "ended", "main", *words) == (
        "node a: container main of pod default/ended terminated with exit code 3\n"
    )
    (main_,) = world.status("ended")["containerStatuses"]
    assert main_["state"]["terminated"]["exitCode"] == 3
    assert main_["state"]["terminated"]["reason"] == "OOMKilled"


def test_leave(world, nodes):
    world.join("c")
    assert nodes("leave", "a", "a") == "node a: has left and is deleted\n"
    assert nodes("leave", "b", "--how", "keep") == "node b: has left and is kept\n"
    assert nodes("leave", "c", "--how", "shutdown") == "node c: has left and is shut down\n"
    assert [each["metadata"]["name"] for each in world.all("nodes")] == ["b", "c"]
    assert world.condition(name="c")["message"] == "node is shutting down"
    assert nodes("list") == "NAME  STATUS  PODS  DEVICES\n"


def test_wrong_node_name_changes_no_node(world, nodes):
    said = nodes("leave", "a", "nope", "b", status=2)
    assert "unknown node 'nope'" in said
    assert set(world.nodes) == {"a", "b"}
    assert "unknown node 'nope'" in nodes("list", "a", "nope", status=2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "c"], "unknown node 'c'"),
        (["reboot", "c"], "unknown node 'c'"),
        (["show", "a/b"], "unknown node 'a/b'"),
        (["show", ""], "argument NODE: invalid value '': expected a text that is not empty"),
        (
            ["fail-device", "a", GPU, "x"],
            f"unknown device 'x' of {GPU}: the resource has gpu-0, gpu-1",
        ),
        (
            ["stop-plugin", "a", "vendor.com/tpu"],
            f"unknown resource vendor.com/tpu: the node has {GPU}",
        ),
        (
            ["evict", "a", "x"],
            "unknown pod 'x': `devicemanager ctl nodes show a` lists the pods of",
        ),
        (["evict", "b", "train"], "unknown pod 'train': `devicemanager ctl nodes show b`"),
        (["exit-container", "a", "train", "none"], "none"),
        (
            ["exit-container", "a", "train", ""],
            "argument CONTAINER: invalid value '': expected a text that is not empty",
        ),
        (["exit-container", "a", "train", "main", "--exit-code", "256"], "exit_code"),
        (
            ["not-ready", "a", "--message", ""],
            "argument --message: invalid value '': expected a text that is not empty",
        ),
        (["not-ready", "a", "--message", "x", "--off"], "not allowed with argument --message"),
        (["pressure", "a"], "one of the arguments --condition --off is required"),
        (["pressure", "a", "--condition", "Heat"], "invalid choice: 'Heat'"),
        (["leave", "a", "--how", "never"], "invalid choice: 'never'"),
        (["scale", "gpu=1000000"], "invalid kind 'gpu=1000000': expected KIND=COUNT"),
        (["scale", "gpu=-1"], "invalid kind 'gpu=-1': expected KIND=COUNT"),
        (["scale", "=1"], "invalid kind '=1': expected KIND=COUNT"),
        ([], "the following arguments are required: ACTION"),
    ],
)
def test_user_errors(world, nodes, words, text):
    world.run("train", "a")
    assert text in nodes(*words, status=2).splitlines()[-1]
    assert set(world.nodes) == {"a", "b"}


def test_number_of_nodes_of_a_kind_has_at_most_six_digits():
    assert ctl_nodes._scaled("a=b=999999") == ("a=b", 999_999)


def test_choices_are_those_of_the_operations():
    for action, dest, choices in (
        ("leave", "how", get_args(Leave)),
        ("pressure", "conditions", tuple(Pressure)),
    ):
        (option,) = (each for each in parsers()[action]._actions if each.dest == dest)
        assert tuple(option.choices) == choices


@pytest.mark.parametrize("words", ["pods", "delete x", "admit {manifest}", "wait resource x"])
def test_kubelet_action_on_nodes_explains_the_mistake(api, ctl, tmp_path, words):
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod_manifest("p", {})))
    assert ctl(*words.format(manifest=manifest).split(), status=2) == (
        "devicemanager: error: /nowhere serves nodes in a cluster (`join --control`), not one "
        "kubelet: use `devicemanager ctl nodes`\n"
    )


@pytest.mark.parametrize("words", ["list", "leave a"])
def test_nodes_action_on_kubelet_explains_the_mistake(make_mock_kubelet, ctl, words):
    kubelet = make_mock_kubelet()
    with ControlServer(kubelet) as server:
        said = ctl("nodes", *words.split(), "--control", str(kubelet.root), status=2)
    assert said == (
        f"devicemanager: error: {server.socket_path} serves one kubelet (`run --control`), not "
        "nodes in a cluster: use `devicemanager ctl` without `nodes`\n"
    )


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", None])
def test_error_is_unchanged_without_openapi_document(api, nodes, monkeypatch, document):
    def ask(transport, method, path, *rest, **options):
        if path != "/openapi.json":
            return api.ask(method, path, *rest, **options)
        if document is None:
            raise ControlError("no answer")
        return Reply(200, "application/json", document)

    monkeypatch.setattr(Transport, "ask", ask)
    assert "unknown node 'c'" in nodes("show", "c", status=2)


def test_missing_server_is_an_error(ctl, tmp_path, monkeypatch):
    monkeypatch.delenv("DEVICEMANAGER_CONTROL", raising=False)
    assert "no nodes selected: use --control DIR" in ctl("nodes", "list", status=2)
    assert ctl("nodes", "--control", str(tmp_path), "list", status=2).endswith(
        f"cannot connect to the control API at {tmp_path}/control.sock: start nodes with "
        "`devicemanager join --control`\n"
    )


# -- on sockets ------------------------------------------------------------------------


def test_tcp_with_token(world, ctl, tmp_path):
    with NodesControlServer(ControlledWorld(world), tmp_path, tcp="127.0.0.1:0") as server:
        where = f"http://{server.address}"
        assert "the token is in the file control.token" in ctl(
            "nodes", "list", "--control", where, status=2
        )
        token = str(server.token_path)
        said = ctl("nodes", "list", "-o", "name", "--control", where, "--token-file", token)
        assert said == "a\nb\n"


def test_output_in_docs_is_exact(world, ctl, tmp_path, monkeypatch):
    """That of docs/cluster.md; the nodes and pods that it needs are created here."""
    for number in (3, 4, 5):
        world.join(f"virtual-{number}", gpus=8)
    world.run("one", "virtual-3")
    world.run("two", "virtual-3", gpus=2)
    world.run("eight", "virtual-5", gpus=8)
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(tmp_path))
    shown = [each for each in sessions(PAGE) if each[0].startswith("devicemanager ctl nodes ")]
    assert len(shown) == 6
    with NodesControlServer(ControlledWorld(world), tmp_path):
        for command, output in shown:
            assert ctl(*shlex.split(command)[2:]) == output


def test_docs_name_every_action():
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    named = {word.split()[0] for row in rows for word in re.findall(r"`([^`]+)`", row)}
    assert {words.split()[0] for words in ACTIONS.values()} - named == set()
