"""``devicemanager ctl`` on claims, drivers and slices of DRA."""

from __future__ import annotations

import json

import pytest
import yaml

from devicemanager.cli import main
from devicemanager.control import ControlServer
from tests.claims.dra.objects import slice_
from tests.kubelet.dra.objects import claim, pod

SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **slice_("d0", "d1")}


@pytest.fixture
def ctl(mock_kubelet, monkeypatch, capsys):
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(mock_kubelet.root))

    def run(*words, status=0):
        capsys.readouterr()
        assert main(["ctl", *words]) == status, capsys.readouterr()
        said = capsys.readouterr()
        return said.err if status == 2 else said.out

    with ControlServer(mock_kubelet):
        yield run


def test_objects_from_a_file_until_their_deletion(ctl, mock_kubelet, simulated_driver, tmp_path):
    simulated_driver(uid="1")
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all([claim("gpu", "gpu-0"), SLICE]))
    assert ctl("apply", str(path)) == f"{path} applied\n"
    mock_kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert [line.split() for line in ctl("claims").splitlines()] == [
        ["NAMESPACE", "NAME", "STATE", "PODS", "DEVICES"],
        ["default", "gpu", "prepared", "default/train", "mock/gpu-0"],
    ]
    assert [line.split() for line in ctl("drivers").splitlines()[1:]] == [
        ["gpu.example.com", "dra-1.sock", "v1", "v1", "yes"]
    ]
    assert [line.split() for line in ctl("slices").splitlines()[1:]] == [
        ["s", "gpu.example.com", "p", "1", "worker", "2"]
    ]
    assert ctl("slices", "-o", "wide").endswith("d0,d1\n")
    assert ctl("claims", "-o", "name") == "default/gpu\n"
    shown = yaml.safe_load(ctl("claim", "default", "gpu"))
    assert (shown["state"], shown["pods"]) == ("prepared", ["uid-train"])
    (found,) = json.loads(ctl("objects", "ResourceSlice", "-o", "json"))["items"]
    assert found["metadata"]["name"] == "s"
    assert ctl("delete-object", "ResourceSlice", "s") == "ResourceSlice s deleted\n"
    assert ctl("slices", "-o", "name") == ""
    path.write_text("apiVersion: resource.k8s.io/v1\nkind: Pod\n")
    assert f'{path}: invalid kind the text "Pod"' in ctl("apply", str(path), status=2)


def test_invalid_file_is_found_before_a_pod_is_admitted(ctl, mock_kubelet, tmp_path):
    good, bad = tmp_path / "pod.yaml", tmp_path / "claim.yaml"
    good.write_text(yaml.safe_dump(pod()))
    bad.write_text(yaml.safe_dump(claim("gpu", "gpu-0")))
    error = ctl("admit", str(good), str(bad), status=2)
    assert f"{bad}: the file has a ResourceClaim but no Pod: put both in one file" in error
    without_pool = claim("gpu", "gpu-0")
    del without_pool["status"]["allocation"]["devices"]["results"][0]["pool"]
    bad.write_text(yaml.safe_dump_all([pod(), without_pool]))
    error = ctl("admit", str(good), str(bad), status=2)
    assert f"{bad}: ResourceClaim gpu: status.allocation.devices.results[0].pool is" in error
    assert mock_kubelet.pods() == {}


def test_claims_are_watched(ctl, mock_kubelet, monkeypatch):
    mock_kubelet.resource_claims.load(claim("gpu", "gpu-0"))

    def follow(self, since):
        mock_kubelet.resource_claims.remove("ResourceClaim", "gpu")
        yield from mock_kubelet.events.recent()[-1:]

    monkeypatch.setattr("devicemanager.control.remote.RemoteEvents.follow", follow)
    said = ctl("claims", "-w").splitlines()
    assert said[1].split() == ["default", "gpu", "not-used", "-", "mock/gpu-0"]
    assert said[2:] == ["default/gpu is gone"]
