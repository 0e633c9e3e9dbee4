"""``dra explain`` and ``explain`` without a kubelet; ``dra`` commands on a mock kubelet."""

from __future__ import annotations

import json

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.cli import main
from devicemanager.control import ControlServer
from tests.claims.dra.objects import claim, device, exactly, selected, slice_
from tests.kubelet.dra.objects import DRIVER, pod
from tests.kubelet.dra.objects import claim as allocated

V1 = "resource.k8s.io/v1"
SELECTOR = "device.attributes['gpu.example.com'].model == 'A100'"


def document(kind, value, version=V1):
    return {**value, "apiVersion": version, "kind": kind}


def objects(*requests, **more):
    """A slice with two devices, a class, a claim with a selector, and a pod."""
    devices = [device("d0", attributes={"model": "A100"}), device("d1", attributes={"model": "T4"})]
    return [
        document("ResourceSlice", slice_(*devices)),
        document("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}}),
        document("ResourceClaim", claim(*requests, name="gpu")),
        document("Pod", pod(**more), "v1"),
    ]


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.delenv("DEVICEMANAGER_CONTROL", raising=False)

    def run(*words, status=0):
        capsys.readouterr()
        assert main(list(words)) == status, capsys.readouterr()
        said = capsys.readouterr()
        return said.err if status == 2 else said.out

    return run


def test_pod_that_fits_names_its_devices(run, written):
    path = written(*objects(exactly("gpu", **selected(SELECTOR))))
    assert run("dra", "explain", "train", path).splitlines() == [
        "pod default/train fits on node worker",
        "claim gpu (gpu): fits: gpu=gpu.example.com/p/d0",
    ]


def test_pod_that_does_not_fit_names_request_selector_and_device(run, written):
    path = written(*objects(exactly("gpu", 2, **selected(SELECTOR))))
    lines = run("dra", "explain", "default/train", path, status=1).splitlines()
    assert lines[:2] == [
        "pod default/train does not fit on node worker",
        "claim gpu (gpu): does-not-fit: the node has no devices for its requests and constraints",
    ]
    assert lines[2] == "claim default/gpu, request gpu: devices wanted: 2, usable: 1"
    assert f"selector #0 is false: {SELECTOR}: {DRIVER}/p/d1" in lines[3]
    found = json.loads(run("dra", "explain", "train", path, "-o", "json", status=1))
    assert (found["schema"], found["fits"]) == ("devicemanager.dra-explain/v1", False)
    assert found["claims"][0]["state"] == "does-not-fit"


@pytest.mark.parametrize(
    ("claims", "changed", "state"),
    [
        ({"gpu": "other"}, {}, "claim gpu (other): not-found"),
        ({"gpu": None}, {}, "claim gpu (template): not-found"),
        ({"gpu": "gpu"}, {"deviceClassName": "none"}, "claim gpu (gpu): error"),
    ],
)
def test_reason_of_each_claim(run, written, claims, changed, state):
    path = written(*objects(exactly("gpu", **changed), claims=claims))
    lines = run("dra", "explain", "train", path, status=1).splitlines()
    assert lines[1].startswith(state)


def test_two_entries_for_one_claim_have_one_result(run, written):
    claims = {"one": "gpu", "two": "gpu"}
    path = written(*objects(exactly("gpu", **selected(SELECTOR)), claims=claims))
    assert run("dra", "explain", "train", path).splitlines() == [
        "pod default/train fits on node worker",
        "claim one (gpu): fits: gpu=gpu.example.com/p/d0",
        "claim two (gpu): fits: gpu=gpu.example.com/p/d0",
    ]
    path = written(*objects(exactly("gpu", 2, **selected(SELECTOR)), claims=claims))
    lines = run("dra", "explain", "train", path, status=1).splitlines()
    text = "does-not-fit: the node has no devices for its requests and constraints"
    assert lines[1:3] == [f"claim {entry} (gpu): {text}" for entry in ("one", "two")]


def test_allocated_claim_and_claim_of_another_node(run, written):
    *others, _, train = objects(exactly("gpu"))
    held = allocated("gpu", "d0")
    path = written(*others, held, train)
    assert "claim gpu (gpu): allocated: gpu=gpu.example.com/mock/d0" in run(
        "dra", "explain", "train", path
    )
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}]
    held["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    path = written(*others, held, train)
    assert "claim gpu (gpu): other-node" in run("dra", "explain", "train", path, status=1)


def test_template_is_read_from_the_manifest(run, written):
    spec = claim(exactly("gpu"))["spec"]
    template = {"metadata": {"name": "template"}, "spec": {"spec": spec}}
    train = document("Pod", pod(claims={"gpu": None}), "v1")
    manifest = written(document("ResourceClaimTemplate", template), train, name="pod.yaml")
    node = written(*objects(exactly())[:2], name="node.yaml")
    assert "fits: gpu=gpu.example.com/p/d0" in run("dra", "explain", "train", node, manifest)
    said = run("explain", manifest, "--claims", node)
    assert "claim gpu (template): fits: gpu=gpu.example.com/p/d0" in said


def test_explain_of_pods_in_order(run, written):
    node = written(*objects(exactly())[:2], name="node.yaml")
    manifests = []
    for name in ("one", "two"):
        request = exactly("gpu", **selected(SELECTOR))
        made = document("ResourceClaim", claim(request, name=name))
        train = document("Pod", pod(name, {"gpu": name}), "v1")
        manifests.append(written(made, train, name=f"{name}.yaml"))
    said = run("explain", *manifests, "--claims", node, "--all", status=1)
    assert "claim gpu (one): fits" in said
    assert "pod default/two does not fit on node worker" in said
    assert f"allocated to another claim: {DRIVER}/p/d0" in said
    found = json.loads(run("explain", *manifests, "--claims", node, "-o", "json", status=1))
    assert found["pods"][0]["reason"] == "Unschedulable"
    assert found["pods"][0]["claims"]["node"] == "worker"


def test_mistakes_are_one_line(run, written):
    path = written(*objects(exactly("gpu")))
    assert "unknown pod 'x': the objects have the pods train" in run(
        "dra", "explain", "x", path, status=2
    )
    assert "nothing to read: give files" in run("dra", "explain", "train", status=2)
    flags = ("--claims", path, "--simulate-pools", "gpu=1")
    assert "--simulate-pools is for structured claims" in run("explain", path, *flags, status=2)
    assert "must be in a file" in run("explain", "-", "--claims", path, status=2)
    clash = ("--control", "x", "--kubeconfig", "y")
    assert "exclude each other" in run("dra", "slices", *clash, status=2)
    for action in (["slices"], ["allocate"], ["validate"], ["explain", "train"]):
        words = ("dra", *action, path, "--kubeconfig", "x")
        assert "--kubeconfig and files exclude each other" in run(*words, status=2)


def test_pod_of_an_api_server_is_explained(run, tmp_path):
    with FakeApiServer() as server:
        for each in objects(exactly("gpu")):
            server.load(each)
        config = str(server.kubeconfig(tmp_path / "config"))
        assert "fits: gpu=gpu.example.com/p/d0" in run(
            "dra", "explain", "train", "--kubeconfig", config
        )
        assert "default/gpu" in run("dra", "allocate", "--kubeconfig", config)


@pytest.fixture
def control(mock_kubelet):
    with ControlServer(mock_kubelet):
        yield str(mock_kubelet.root)


def test_objects_of_a_mock_kubelet(run, mock_kubelet, control, monkeypatch):
    mock_kubelet.resource_claims.load(objects(exactly("gpu"))[:3])
    assert run("dra", "slices", "--control", control, "-o", "name") == "s\n"
    monkeypatch.setenv("DEVICEMANAGER_CONTROL", control)
    assert "default    gpu    pending" in run("dra", "claims")
    assert f"{DRIVER}" in run("dra", "pools")
    assert "gpu.example.com/p/d0" in run("dra", "allocate")
    assert "3 objects are valid" in run("dra", "validate")
    mock_kubelet.resource_claims.clear()
    assert "the mock kubelet: no objects" in run("dra", "validate", status=2)


def test_driver_is_called_for_claims(run, mock_kubelet, control, simulated_driver):
    driver = simulated_driver()
    mock_kubelet.resource_claims.load([allocated("gpu", "gpu-0"), allocated("other", "gpu-1")])
    where = ("--control", control)
    said = run("dra", "prepare", "gpu", "default/other", *where).splitlines()
    assert said[0].startswith(f"{DRIVER}: claim uid-gpu: prepared mock/gpu-0 ")
    assert len(said) == 2
    assert run("dra", "prepare", "gpu", "--unprepare", *where) == (
        f"{DRIVER}: claim uid-gpu: unprepared\n"
    )
    assert [call.rpc for call in driver.calls] == ["NodePrepareResources", "NodeUnprepareResources"]
    mock_kubelet.resource_claims.deallocate("default", "gpu")
    text = "claim default/gpu is not allocated"
    assert text in run("dra", "prepare", "gpu", *where, status=2)
    command = ("dra", "prepare", "gpu", "--driver", DRIVER, "-o", "json", *where)
    found = json.loads(run(*command, status=1))
    assert found["drivers"][DRIVER]["uid-gpu"]["error"]


def test_state_of_a_file(run, mock_kubelet, simulated_driver):
    simulated_driver()
    mock_kubelet.admit(pod(), claims=allocated("gpu", "gpu-0"))
    path = str(mock_kubelet.dra_state_path)
    assert "claim default/gpu (UID uid-gpu)" in run("dra", "state", path)
    found = json.loads(run("dra", "state", path, "-o", "json"))
    assert [each["name"] for each in found["claims"]] == ["gpu"]
