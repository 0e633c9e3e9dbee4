"""All JSON of the command: one spelling of names, numbers as numbers, shapes as documented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli import main
from devicemanager.cli.kubelet_log import KubeletLog
from devicemanager.events.calls import CallLog
from devicemanager.events.calls.file import CallsFile
from devicemanager.events.stream import EventStream
from devicemanager.fleet import Fleet, fleet_archive
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.objects.manifests import parse
from devicemanager.snapshot import archive
from devicemanager.testing import pod_manifest
from podresources import (
    Allocatable,
    Container,
    ContainerDevices,
    ContainerMemory,
    MemorySource,
    Pod,
    PodResourcesServer,
)
from tests.paths import ROOT
from tests.snapshot.made_up import WHOLE

GPU = "vendor.com/gpu"
PAGE = (ROOT / "docs" / "json.md").read_text()
DOCUMENTED = {
    schema: re.findall(r"`([a-z_]+)`", fields)
    for schema, fields in re.findall(
        r"^\| `(devicemanager\.[a-z-]+/v1)` \| .* \| (.*) \|$", PAGE, re.M
    )
}
WITH_THEIR_OWN_PAGE = {
    # Printed in test_dra_explain.py and test_dra_pods.py; most need a running kubelet.
    "devicemanager.dra/v1",
    "devicemanager.dra-explain/v1",
    "devicemanager.dra-prepare/v1",
    "devicemanager.pod-claims/v1",
    "devicemanager.recording/v1",
    "devicemanager.replay/v1",
}
NAMES_OF_USERS = {
    "envs",
    "annotations",
    "registered_devices",
    "unregistered",
    "hints",
    "containers",
}
"""Objects whose keys are data, not names of fields."""


@pytest.fixture
def printed(tmp_path: Path, capsys: Any) -> dict[str, Any]:
    """Collect an example of each shape, by its schema."""
    saved, pod = tmp_path / "saved", tmp_path / "pod.yaml"
    entry = PodDevicesEntry("u-1", "main", GPU, {0: ("g0",), -1: ("g1",)}, b"")
    saved.write_bytes(checkpoint.dumps(Checkpoint((entry, entry), {GPU: ("g0", "g1", "g2")})))
    pod.write_text(json.dumps(pod_manifest("a", {GPU: 9})))
    held = (ContainerDevices(GPU, ("g0",), (0,)),)
    memory = (ContainerMemory("memory", 1 << 60, (0,)),)
    container = Container("main", held, cpu_ids=(3,), memory=memory)
    source = MemorySource([Pod("a", "b", (container,))], Allocatable(held, cpu_ids=(1, 3)))
    with PodResourcesServer(source, tmp_path / "k.sock") as server:
        reading = ["--socket", str(server.socket_path), "-o", "json"]
        commands = [["pods", *reading], ["resources", *reading], ["top", *reading]]
        edit = ["edit", "--drop-pod", "u-1"]
        for action in (["show"], ["verify"], ["diff", str(saved)], ["repair"], edit):
            commands.append(["checkpoint", *action, str(saved), "-o", "json"])
        commands.append(["check", "--list", "-o", "json"])
        node_file = tmp_path / "node.tar.gz"
        node_file.write_bytes(archive(WHOLE))
        commands.append(["rehearse", str(node_file), "--restart", "-o", "json"])
        fleet_file = tmp_path / "fleet.tar.gz"
        fleet_file.write_bytes(fleet_archive(Fleet("2026-01-31T12:00:00Z", "t", "s")))
        small = tmp_path / "small.yaml"
        small.write_text(json.dumps(pod_manifest("a", {GPU: 1})))
        commands.append(["fleet", "show", str(fleet_file), "-o", "json"])
        commands.append(["fleet", "fits", str(small), str(fleet_file), "-o", "json"])
        commands.append(["fleet", "rehearse", str(fleet_file), "--restart", "-o", "json"])
        commands.append(["explain", str(pod), "--devices", f"{GPU}=2@0", "-o", "json"])
        for command in commands:
            assert main(command) in (0, 1)
    node = InMemoryKubelet(Settings(), {GPU: ()})
    with CallsFile(tmp_path / "calls", log := CallLog(EventStream(), 1, 100), pytest.fail):
        tap = log.recorder(GPU, "gpu.sock")
        assert tap is not None
        tap.begin("ListAndWatch").received_message(b"")
    print((tmp_path / "calls").read_text())
    rejected = parse(pod_manifest("a", {GPU: 1}))
    KubeletLog(as_json=True).admission(rejected, node.admit(rejected, start=False))
    decoder, text, shapes = json.JSONDecoder(), capsys.readouterr().out, {}
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        text = text[end:]
        shapes[value["schema"]] = value
    return shapes


def test_every_shape_is_documented(printed: dict[str, Any]) -> None:
    assert sorted(printed) == sorted(DOCUMENTED.keys() - WITH_THEIR_OWN_PAGE)
    for schema, value in printed.items():
        fields = [name for name in value if name != "schema"]
        if schema == "devicemanager.run/v1":
            assert fields[:2] == DOCUMENTED[schema][:2]
        else:
            assert fields == DOCUMENTED[schema]
    names_of_run = [name for name in printed["devicemanager.run/v1"] if name != "schema"]
    (documented,) = re.findall(r"^\| `admission` \| (.*) \|$", PAGE, re.M)
    other_names = re.findall(r"`([a-z_]+)`", documented)
    assert sorted(names_of_run) == sorted(["time", "kind", "message", *other_names])


def fields_of(value: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and value of every field, without names that users choose."""
    if isinstance(value, list):
        for each in value:
            yield from fields_of(each, within)
    elif isinstance(value, dict):
        for name, each in value.items():
            if within not in NAMES_OF_USERS and "/" not in name:
                yield name, each
            yield from fields_of(each, name)


def test_names_are_snake_case_and_numbers_are_numbers(printed: dict[str, Any]) -> None:
    seen = 0
    for value in printed.values():
        for name, each in fields_of(value):
            if name.startswith(("gpu-", "g0")):
                continue  # a device's ID
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name), name
            assert not (isinstance(each, str) and each.isdigit()), (name, each)
            seen += 1
    assert seen > 60


def test_container_on_the_page_is_one_of_run(printed: dict[str, Any]) -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)
    from devicemanager.kubelet.pods.data import container_data

    node = InMemoryKubelet(Settings(), {})
    admitted = node.admit(parse(pod_manifest("a", {})))
    given = container_data(admitted.containers["main"])
    shown = json.loads(block)
    assert list(given) == list(shown)
    assert list(given["settings"]) == list(shown["settings"])
