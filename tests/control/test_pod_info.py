"""PodInfo is the one description of a pod: each field is wherever pods are shown."""

from __future__ import annotations

import json
import re

import attrs
import msgspec
import pytest
import yaml

from devicemanager.cli import main
from devicemanager.control.openapi import field_docs
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.pods.pod_info import ContainerInfo, PodInfo
from devicemanager.observe.view import KubeletView
from devicemanager.observe.web.page.document import Documents
from devicemanager.testing import pod_manifest
from tests.claims.documents import claim, device_class, pool
from tests.control.nodes.inprocess import InProcess, two_nodes
from tests.kubelet.dra import objects as dra_objects
from tests.paths import ROOT

GPU = "vendor.com/gpu"
CLASSES = [PodInfo, ContainerInfo]


def names(cls):
    return [each.name for each in attrs.fields(cls)]


@pytest.fixture
def pods(mock_kubelet, simulated_plugin):
    """Pods which together have a value for each field that is not the default."""
    simulated_plugin(GPU, 4)
    mock_kubelet.publish(pool(nodeName=mock_kubelet.settings.node_name))
    mock_kubelet.define(device_class())
    mock_kubelet.claim(claim("x"))
    whole = pod_manifest("whole", {GPU: 1}, init=[{GPU: 1}, {}], claims=["x"], uid="whole")
    whole["spec"]["restartPolicy"] = "OnFailure"
    whole["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    mock_kubelet.admit(whole)
    mock_kubelet.admit(pod_manifest("rejected", {GPU: 9}, uid="rejected"))
    mock_kubelet.admit(pod_manifest("restarted", {}, uid="restarted"))
    for _ in range(2):  # at once, then with a delay
        mock_kubelet.exit_container("restarted", "main", 1)
    mock_kubelet.admit(pod_manifest("deleted", {}, uid="deleted"))
    mock_kubelet.delete("deleted")
    with SimulatedDriver(kubelet=mock_kubelet) as driver:
        driver.wait_registered()
        mock_kubelet.admit(dra_objects.pod(), claims=dra_objects.claim("gpu", "gpu-0"))
        return mock_kubelet.pods()


def test_sample_has_a_value_for_every_field(pods):
    containers = [each for pod in pods.values() for each in pod.all_containers]
    for cls, samples in ((PodInfo, pods.values()), (ContainerInfo, containers)):
        required = {"uid", "name", "namespace"}
        defaults = cls(**dict.fromkeys(required & {*names(cls)}, ""))
        for name in names(cls):
            if name != "schema":
                values = [getattr(each, name) for each in samples]
                assert any(value != getattr(defaults, name) for value in values), name


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_is_documented(cls):
    assert set(field_docs(cls)) == set(names(cls))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("file", ["openapi.json", "openapi-nodes.json"])
def test_every_field_is_in_the_documents(cls, file):
    schema = json.loads((ROOT / "docs" / file).read_text())["components"]["schemas"][cls.__name__]
    assert list(schema["properties"]) == schema["required"] == names(cls)
    assert all(each["description"] for each in schema["properties"].values())


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_is_in_the_go_types(cls):
    source = (ROOT / "clients/go/types.go").read_text()
    struct = re.search(rf"^type {cls.__name__} struct \{{(.*?)^\}}", source, re.M | re.S)[1]
    assert re.findall(r'json:"(\w+)"', struct) == names(cls)


def test_http_shows_every_field(pods, client, raw):
    for pod in pods.values():
        shown = json.loads(raw.ask("GET", f"/v1/pods/{pod.uid}").body)
        assert list(shown) == names(PodInfo)
        for each in (*shown["containers"], *shown["init_containers"]):
            assert list(each) == names(ContainerInfo)
        assert client.pod(pod.uid) == pod
    assert client.pods() == pods
    again = client.admit(pod_manifest("again", {}, uid="again"))
    assert again.pod == client.pod("again")


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_ctl_shows_every_field(pods, server, capsys, form, load):
    assert main(["ctl", "pods", "-o", form, "--control", str(server.socket_path)]) == 0
    items = load(capsys.readouterr().out)["items"]
    assert [list(each) for each in items] == [names(PodInfo)] * len(pods)
    assert msgspec.convert(items, list[PodInfo]) == list(pods.values())


def test_ctl_lists_the_cdi_devices_of_a_container(pods, server, capsys):
    assert main(["ctl", "pods", "-o", "wide", "--control", str(server.socket_path)]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert "CDI DEVICES" in heading
    (row,) = (each for each in rows if " train " in each)
    assert "k8s.gpu.example.com/claim=uid-gpu-gpu-0" in row


def test_view_and_page_show_every_field(pods, mock_kubelet):
    view = KubeletView(mock_kubelet).refresh()
    assert view.pods == tuple(pods.values())
    rows = Documents().of(view, ())["pods", ""]
    for pod in pods.values():
        row = {"schema": pod.schema, "uid": pod.uid, **rows[pod.uid]}
        assert row.keys() == set(names(PodInfo))
        assert msgspec.convert(row, PodInfo) == pod


def test_nodes_in_a_cluster_show_every_field():
    world = two_nodes()
    uid = world.run("train", "a", gpus=1)
    (shown,) = json.loads(InProcess(world).ask("GET", "/v1/nodes/a").body)["pod_list"]
    assert list(shown) == names(PodInfo)
    assert msgspec.convert(shown, PodInfo) == world.nodes["a"].kubelet.pod(uid)
