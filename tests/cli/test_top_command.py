"""``devicemanager top``."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from unittest import mock

import pytest

from devicemanager.cli import main
from devicemanager.cli.top import _Poller
from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    DynamicResource,
    MemorySource,
    NotServing,
    Pod,
    PodResourcesServer,
)
from tests.observe.terminal.test_signals import COMMAND, under_a_shell
from tests.observe.terminal.watched import Watched

GPU = "vendor.com/gpu"


@pytest.fixture
def socket(directory: Path) -> Path:
    return directory / "kubelet.sock"


def node(*held: str) -> MemorySource:
    pods = [Pod("train", "default", (Container("main", (ContainerDevices(GPU, held, (1,)),)),))]
    return MemorySource(pods, Allocatable((ContainerDevices(GPU, ("a", "b", "c"), (1,)),)))


def test_top_prints_once_without_a_terminal(socket, capsys):
    with PodResourcesServer(node("a"), socket):
        assert main(["top", "--socket", str(socket)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [GPU, "NUMA", "1", "■□□", "1■", "2□"]
    assert lines[4].split() == ["default/train", "gpu", "a"]
    assert "Not listed by PodResources: unhealthy devices" in lines[5]


def test_top_is_live_on_a_terminal_and_survives_the_kubelet(socket):
    top = [*COMMAND, "top", "--socket", str(socket), "--interval", "0.1"]
    server = PodResourcesServer(node("a"), socket)
    server.start()
    with Watched() as watched, under_a_shell(watched, top):
        watched.wait_for("■ 1 allocated  □ 2 free")
        server.stop()
        watched.wait_for("there is no socket")
        with PodResourcesServer(node("a", "b"), socket):
            watched.wait_for("■ 2 allocated  □ 1 free")
            watched.wait_until(lambda: "there is no socket" not in watched.text)
            watched.press("q")
            watched.wait_for("ENDED 0")
        assert watched.is_restored


def test_top_as_json(socket, capsys):
    held = Pod(
        "train",
        "default",
        (
            Container(
                "main",
                (ContainerDevices(GPU, ("a", "gone"), (1,)),),
                dynamic_resources=(DynamicResource("net", "ml", (ClaimResource("d", "p", "x"),)),),
            ),
        ),
    )
    offered = Allocatable((ContainerDevices(GPU, ("b", "a"), (1,)),))
    with PodResourcesServer(MemorySource([held], offered), socket):
        assert main(["top", "--socket", str(socket), "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    holders = [{"pod": "default/train", "container": "main"}]
    assert data["schema"] == "devicemanager.top/v1"
    assert data["numa_nodes"] == [1]
    assert data["resources"] == [
        {
            "resource_name": GPU,
            "allocatable": 2,
            "devices": [
                {"device_id": "a", "state": "held", "numa_nodes": [1], "holders": holders},
                {"device_id": "b", "state": "free", "numa_nodes": [1], "holders": []},
                {"device_id": "gone", "state": "gone", "numa_nodes": [1], "holders": holders},
            ],
        }
    ]
    devices = [{"resource_name": GPU, "device_ids": ["a", "gone"]}]
    container = {"name": "main", "devices": devices, "claims": {"net": ["p/x"]}}
    assert data["pods"] == [{"namespace": "default", "name": "train", "containers": [container]}]
    assert len(data["notes"]) == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--socket", "/nowhere/kubelet.sock"], "there is no socket at /nowhere/kubelet.sock"),
        (
            ["--interval", "0"],
            "invalid interval '0': use a number of seconds from 0.1 to 3600",
        ),
        (["--interval", "often"], "invalid interval 'often': use a number"),
    ],
)
def test_invalid_input_is_a_one_line_error(arguments, text, capsys):
    assert main(["top", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_colors_are_only_for_terminals(socket, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with PodResourcesServer(node("a"), socket):
        assert main(["top", "--once", "--socket", str(socket)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_notice_says_since_when_the_view_is_old(monkeypatch):
    results = iter(["first", NotServing("a"), NotServing("b"), "second", NotServing("c")])
    times, notices, over = iter(["10:00:00", "10:00:05"]), [], threading.Event()

    def fetch(client, view):
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    def changed(notice):
        notices.append(notice)
        if len(notices) == 4:
            poller._closing.set()
            over.set()

    monkeypatch.setattr("devicemanager.cli.top._fetch", fetch)
    monkeypatch.setattr("time.strftime", lambda form: next(times))
    poller = _Poller(mock.Mock(), mock.Mock(), 0.0)
    assert poller.latest == "first"
    poller.changed = changed
    with poller:
        assert over.wait(20)
    assert notices == ["since 10:00:00: a", "since 10:00:00: b", "", "since 10:00:05: c"]
    assert poller.latest == "second"
