"""``devicemanager ctl nodes``, against nodes of this process."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from typing import get_args

import pytest
import yaml

from devicemanager.cli import ctl_nodes_options, main
from devicemanager.cli.options import CommandParser
from devicemanager.control import ControlError, ControlServer
from devicemanager.control.nodes.operations import OPERATIONS
from devicemanager.control.nodes.protocol import Leave
from devicemanager.control.nodes.server import NodesControlServer
from devicemanager.control.transport import Reply, Transport
from devicemanager.core.nodestatus.conditions import Pressure
from tests.cluster.world import GPU
from tests.control.nodes.inprocess import InProcess, SteeredWorld, two_nodes
from tests.paths import ROOT
from tests.test_documentation import sessions

PAGE = ROOT / "docs" / "cluster.md"


@pytest.fixture
def world():
    return two_nodes()


@pytest.fixture
def api(world, monkeypatch):
    """What answers instead of a server."""
    api = InProcess(world)
    monkeypatch.setattr(Transport, "ask", lambda _, *args, **options: api.ask(*args, **options))
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", "/nowhere")
    return api


@pytest.fixture
def ctl(world, capsys):
    """An action, and all that comes of it."""

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
    assert set(ACTIONS) == {each.name for each in OPERATIONS}, "add an action"
    rows = {each.name: each for each in OPERATIONS}
    world.run("ended", "a")
    world.run("evicted", "a")
    for name, words in ACTIONS.items():
        nodes(*words.split())
        method, path = api.asked[-1]
        form = re.sub(r"{[a-z]+}", "[^/]+", rows[name].path)
        assert method == rows[name].method, name
        assert re.fullmatch(form, path.partition("?")[0]), name


def test_every_action_is_of_an_operation():
    parser = CommandParser()
    ctl_nodes_options.add(parser.add_subparsers(parser_class=CommandParser))
    (group,) = choices(parser)
    group.complete(group)
    names = [each.prog.split()[-1] for each in choices(group)]
    assert sorted(names) == sorted(words.split()[0] for words in ACTIONS.values())


def choices(parser):
    """The parsers below one; argparse tells them in no other way."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def test_nodes_are_listed(world, nodes):
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


def test_a_node_is_shown(world, nodes):
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
    assert resources.splitlines()[1].split() == [GPU, "4", "4", "2"]
    train, more = pods.splitlines()[1:]
    assert train.split() == ["default", "train", "Running", "-", "gpu-0,gpu-1", uid, "-"]
    assert more.split()[:5] == ["default", "more", "Failed", "UnexpectedAdmissionError", "-"]
    assert more.endswith("Available: 2, which is unexpected")
    data = json.loads(nodes("show", "a", "-o", "json"))
    assert data["schema"] == "devicemanager.cluster-node/v1"
    assert data == yaml.safe_load(nodes("show", "a", "-o", "yaml"))


def test_devices_and_plugins(world, nodes):
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
    assert nodes("zero-capacity", "a", GPU) == f"node a: plugin {GPU} lists nothing\n"
    assert world.node("a")["status"]["capacity"][GPU] == "0"
    nodes("zero-capacity", "a", GPU, "--off")
    assert world.node("a")["status"]["capacity"][GPU] == "4"


def test_conditions(world, nodes):
    assert nodes("not-ready", "a", "b") == "node a: made not ready\nnode b: made not ready\n"
    assert world.condition(name="a")["message"] == "made not ready on purpose"
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
    assert world.heartbeat.silent == {"a"}


def test_pods_end(world, nodes):
    world.run("train", "a")
    uid = world.run("more", "a")
    said = nodes("evict", "a", "default/train", uid, "--resource", "nodefs")
    assert said == "node a: pod default/train evicted\nnode a: pod default/more evicted\n"
    for name in ("train", "more"):
        assert world.status(name)["message"] == "The node was low on resource: nodefs. "
    world.run("ended", "a", restartPolicy="Never")
    words = ["--exit-code", "3", "--reason", "OOMKilled"]
    assert nodes("exit-container", "a", "ended", "main", *words) == (
        "node a: container main of pod default/ended ended with 3\n"
    )
    (main_,) = world.status("ended")["containerStatuses"]
    assert main_["state"]["terminated"]["exitCode"] == 3
    assert main_["state"]["terminated"]["reason"] == "OOMKilled"


def test_nodes_leave(world, nodes):
    world.join("c")
    assert nodes("leave", "a", "a") == "node a: has left and is deleted\n"
    assert nodes("leave", "b", "--how", "keep") == "node b: has left and is kept\n"
    assert nodes("leave", "c", "--how", "shutdown") == "node c: has left and is shut down\n"
    assert [each["metadata"]["name"] for each in world.all("nodes")] == ["b", "c"]
    assert world.condition(name="c")["message"] == "node is shutting down"
    assert nodes("list") == "NAME  STATUS  PODS  DEVICES\n"


def test_all_nodes_that_are_named_or_none(world, nodes):
    said = nodes("leave", "a", "nope", "b", status=2)
    assert "there is no node 'nope' here" in said
    assert set(world.nodes) == {"a", "b"}
    assert "there is no node 'nope' here" in nodes("list", "a", "nope", status=2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "c"], "there is no node 'c' here"),
        (["reboot", "c"], "there is no node 'c' here"),
        (["show", "a/b"], "there is no node 'a/b' here"),
        (["show", ""], "argument NODE: must not be empty"),
        (["fail-device", "a", GPU, "x"], f"{GPU} has no device 'x': it has gpu-0, gpu-1"),
        (["stop-plugin", "a", "vendor.com/tpu"], f"no plugin of vendor.com/tpu: it has {GPU}"),
        (["evict", "a", "x"], "no pod 'x': `devicemanager ctl nodes show a` lists those of"),
        (["evict", "b", "train"], "there is no pod 'train': `devicemanager ctl nodes show b`"),
        (["exit-container", "a", "train", "none"], "none"),
        (["exit-container", "a", "train", ""], "argument CONTAINER: must not be empty"),
        (["exit-container", "a", "train", "main", "--exit-code", "256"], "exit_code"),
        (["not-ready", "a", "--message", ""], "argument --message: must not be empty"),
        (["not-ready", "a", "--message", "x", "--off"], "not allowed with argument --message"),
        (["pressure", "a"], "one of the arguments --condition --off is required"),
        (["pressure", "a", "--condition", "Heat"], "invalid choice: 'Heat'"),
        (["leave", "a", "--how", "never"], "invalid choice: 'never'"),
        ([], "the following arguments are required: ACTION"),
    ],
)
def test_what_the_user_has_to_change(world, nodes, words, text):
    world.run("train", "a")
    assert text in nodes(*words, status=2).splitlines()[-1]
    assert set(world.nodes) == {"a", "b"}


def test_choices_are_those_of_the_api():
    assert get_args(Leave) == ctl_nodes_options.LEAVE
    assert tuple(Pressure) == ctl_nodes_options.PRESSURES


@pytest.mark.parametrize("words", ["pods", "delete x", "admit {manifest}", "wait resource x"])
def test_a_kubelet_is_looked_for_where_nodes_are(api, ctl, tmp_path, words):
    manifest = tmp_path / "pod.json"
    manifest.write_text("{}")
    assert ctl(*words.format(manifest=manifest).split(), status=2) == (
        "devicemanager: error: /nowhere serves nodes in a cluster (`join --control`), not one "
        "kubelet: use `devicemanager ctl nodes`\n"
    )


@pytest.mark.parametrize("words", ["list", "leave a"])
def test_nodes_are_looked_for_where_a_kubelet_is(make_mock_kubelet, ctl, words):
    kubelet = make_mock_kubelet()
    with ControlServer(kubelet) as server:
        said = ctl("nodes", *words.split(), "--control", str(kubelet.root), status=2)
    assert said == (
        f"devicemanager: error: {server.socket_path} serves one kubelet (`run --control`), not "
        "nodes in a cluster: use `devicemanager ctl` without `nodes`\n"
    )


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", None])
def test_an_error_stays_where_nobody_says_what_is_served(api, nodes, monkeypatch, document):
    def ask(transport, method, path, *rest, **options):
        if path != "/openapi.json":
            return api.ask(method, path, *rest, **options)
        if document is None:
            raise ControlError("no answer")
        return Reply(200, "application/json", document)

    monkeypatch.setattr(Transport, "ask", ask)
    assert "there is no node 'c' here" in nodes("show", "c", status=2)


def test_nobody_is_there(ctl, tmp_path, monkeypatch):
    monkeypatch.delenv("DEVICEMANAGER_CONTROL", raising=False)
    assert "which nodes? Give --control DIR" in ctl("nodes", "list", status=2)
    assert ctl("nodes", "--control", str(tmp_path), "list", status=2).endswith(
        f"nobody serves the control API on {tmp_path}/control.sock: start nodes with "
        "`devicemanager join --control`\n"
    )


# -- on sockets ------------------------------------------------------------------------


def test_over_tcp_with_the_token(world, ctl, tmp_path):
    with NodesControlServer(SteeredWorld(world), tmp_path, tcp="127.0.0.1:0") as server:
        where = f"http://{server.address}"
        assert "the token is in control.token" in ctl("nodes", "list", "--control", where, status=2)
        token = str(server.token_path)
        said = ctl("nodes", "list", "-o", "name", "--control", where, "--token-file", token)
        assert said == "a\nb\n"


def test_the_page_shows_what_is_printed(world, ctl, tmp_path, monkeypatch):
    """docs/cluster.md; the nodes and pods that it takes for granted are made here."""
    for number in (3, 4, 5):
        world.join(f"virtual-{number}", gpus=8)
    world.run("one", "virtual-3")
    world.run("two", "virtual-3", gpus=2)
    world.run("eight", "virtual-5", gpus=8)
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(tmp_path))
    shown = [each for each in sessions(PAGE) if each[0].startswith("devicemanager ctl nodes ")]
    assert len(shown) == 6
    with NodesControlServer(SteeredWorld(world), tmp_path):
        for command, output in shown:
            assert ctl(*shlex.split(command)[2:]) == output


def test_the_page_names_every_action():
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.MULTILINE)
    named = {word.split()[0] for row in rows for word in re.findall(r"`([^`]+)`", row)}
    assert {words.split()[0] for words in ACTIONS.values()} - named == set()
