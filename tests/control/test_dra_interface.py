"""Claims, drivers and slices of DRA, through the kubelet and through its client."""

from __future__ import annotations

import pytest

from devicemanager import ManifestError, RequestError, RpcError
from devicemanager.control import MockKubeletClient
from devicemanager.core.dra.report import ClaimState, ResourceSliceInfo
from tests.claims.dra.objects import slice_
from tests.kubelet.dra.objects import DRIVER, claim, pod

SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **slice_("d0", "d1")}


def slice_of(**spec):
    return {**SLICE, "spec": {**SLICE["spec"], **spec}}


@pytest.fixture(params=["here", "remote"])
def kubelet(request, mock_kubelet):
    """The kubelet or its client; mock_kubelet is the kubelet behind it."""
    if request.param == "here":
        return mock_kubelet
    return MockKubeletClient(request.getfixturevalue("server").socket_path)


def test_claim_from_its_creation_to_its_end(kubelet, mock_kubelet, simulated_driver):
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    (unused,) = kubelet.dra_status().claims
    assert (unused.title, unused.state) == ("default/gpu", ClaimState.NOT_USED)
    assert (unused.held, [each.prepared for each in unused.devices]) == (False, [False])
    mock_kubelet.resource_claims.reserve("default", "gpu", "uid-train")
    kubelet.admit(pod())
    waits = kubelet.claim_info("default", "gpu")
    assert waits.state is ClaimState.NO_DRIVER
    assert "it has not registered since" in waits.text
    assert waits.error == f"prepare dynamic resources: DRA driver {DRIVER} is not registered"
    assert (waits.pods, waits.prepared) == (("uid-train",), False)
    simulated_driver()
    mock_kubelet.resync("uid-train")
    found = kubelet.claim_info("default", "gpu")
    assert (found.state, found.error, found.prepared) == (ClaimState.PREPARED, "", True)
    (device,) = found.devices
    assert (device.driver, device.pool, device.device) == (DRIVER, "mock", "gpu-0")
    assert device.prepared
    assert device.cdi_devices
    assert found.drivers == (DRIVER,)
    assert kubelet.dra_status() == mock_kubelet.dra_status()
    kubelet.terminate("uid-train")
    # The reservation stays in the claim: only the claim controller removes it.
    assert kubelet.claim_info("default", "gpu").state is ClaimState.NOT_USED
    kubelet.resource_claims.remove("ResourceClaim", "gpu")
    assert kubelet.dra_status().claims == ()
    with pytest.raises(RequestError, match=r"^unknown ResourceClaim default/gpu: create it first$"):
        kubelet.claim_info("default", "gpu")


def test_running_pod_keeps_its_claim_over_a_restart(kubelet, mock_kubelet, simulated_driver):
    driver = simulated_driver()
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    mock_kubelet.resource_claims.reserve("default", "gpu", "uid-train")
    kubelet.admit(pod())
    driver.stop()
    kubelet.restart()
    kept = kubelet.claim_info("default", "gpu")
    # The kubelet forgets that the claim is prepared, but the pod needs no driver to run.
    assert (kept.state, kept.prepared) == (ClaimState.PREPARED, False)
    assert kept.text.startswith("prepared before the kubelet restarted")
    assert kubelet.dra_status().claims == (kept,)
    (explained,) = kubelet.explain_claims("uid-train").claims
    assert (explained.state, explained.text) == (kept.state, kept.text)
    # After a reboot, the pod needs a new sandbox, and therefore NodePrepareResources.
    kubelet.reboot()
    assert kubelet.claim_info("default", "gpu").state is ClaimState.NO_DRIVER
    (explained,) = kubelet.explain_claims("uid-train").claims
    assert explained.state is ClaimState.NO_DRIVER


def test_resync_retries_at_once(kubelet, mock_kubelet, simulated_driver):
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    mock_kubelet.resource_claims.reserve("default", "gpu", "uid-train")
    kubelet.admit(pod())
    simulated_driver()
    kubelet.resync("uid-train")
    assert kubelet.claim_info("default", "gpu").state is ClaimState.PREPARED
    with pytest.raises(RequestError, match="no pod has the UID"):
        kubelet.resync("uid-other")


def test_claim_that_does_not_exist_is_listed_with_its_pod(kubelet, mock_kubelet, simulated_driver):
    simulated_driver()
    mock_kubelet.resource_claims.load(claim("other", "gpu-1"))
    kubelet.admit(pod())
    (found, _) = kubelet.dra_status().claims
    assert (found.name, found.uid, found.pods) == ("gpu", "", ("uid-train",))
    assert found.state is ClaimState.PREPARE_FAILED
    assert found.error in found.text
    assert 'resourceclaims.resource.k8s.io "gpu" not found' in found.error


def test_objects_are_listed_and_deleted(kubelet):
    claims = kubelet.resource_claims
    claims.load([claim("b", "gpu-0"), SLICE, claim("a", metadata={"namespace": "x"})])
    assert [each["metadata"]["name"] for each in claims.list()] == ["b", "a"]
    assert claims.get("x", "a")["metadata"]["namespace"] == "x"
    assert claims.get("default", "a") is None
    assert claims.objects("ResourceSlice")[0]["spec"]["driver"] == DRIVER
    (found,) = kubelet.dra_status().slices
    assert found == ResourceSliceInfo(
        name=SLICE["metadata"]["name"],
        driver=DRIVER,
        pool="p",
        generation=SLICE["spec"]["pool"]["generation"],
        nodes=SLICE["spec"]["nodeName"],
        devices=("d0", "d1"),
        counter_sets=(),
    )
    claims.remove("ResourceSlice", found.name)
    claims.remove("ResourceClaim", "a", namespace="x")
    assert kubelet.dra_status().slices == ()
    with pytest.raises(RequestError, match=r"^ResourceSlice "):
        claims.remove("ResourceSlice", found.name)
    with pytest.raises(RequestError, match=r"^no ResourceClaim has the name x/a"):
        claims.remove("ResourceClaim", "a", namespace="x")
    with pytest.raises(RequestError, match=r"^invalid kind 'Pod': use one of ResourceClaim, "):
        claims.objects("Pod")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("kind: Pod\n", 'invalid kind the text "Pod": use one of'),
        ("- 1\n", "expected an object of"),
        ({**SLICE, "apiVersion": "resource.k8s.io/v1beta1"}, "ResourceSlice: apiVersion must be"),
        ({**SLICE, "metadata": {}}, r"ResourceSlice: metadata\.name is required"),
        (slice_of(pool=1), r"ResourceSlice s: spec: pool must be a mapping"),
        (slice_of(pool={"generation": "1"}), r"ResourceSlice s: spec\.pool\.generation must be a"),
        (slice_of(devices=["gpu"]), r"ResourceSlice s: spec\.devices must be a list of mappings"),
        (slice_of(devices=[{"name": 1}]), r"ResourceSlice s: spec\.devices\[0\]\.name must be a"),
        ({**SLICE, "metadata": {"name": "s", "namespace": 1}}, r"ResourceSlice s: metadata\.names"),
    ],
)
def test_invalid_objects(kubelet, source, error):
    with pytest.raises(ManifestError, match=f"^{error}"):
        kubelet.resource_claims.load(source)


def test_change_of_an_object_is_an_event(kubelet):
    mark = kubelet.mark()
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    found = kubelet.wait_for_event("dra-objects-changed", since=mark, timeout=0)
    assert found.message == "ResourceClaim default/gpu applied"


def test_direct_calls_reach_the_instance(kubelet, mock_kubelet, simulated_driver):
    simulated_driver(uid="1")
    new = simulated_driver(uid="2")
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    found = kubelet.prepare_claims(DRIVER, ["default/gpu"])
    assert [each.device for each in found["uid-gpu"].devices] == ["gpu-0"]
    old, newest = kubelet.dra_status().drivers
    assert newest.endpoint == str(new.sockets.service_socket)
    assert kubelet.unprepare_claims(DRIVER, ["gpu"], endpoint=old.endpoint)["uid-gpu"].error == ""
    # The plugin watcher's calls can end later.
    calls = [
        (call.rpc, call.plugin)
        for rpc in ("NodePrepareResources", "NodeUnprepareResources")
        for call in mock_kubelet.calls(DRIVER, rpc=rpc)
    ]
    assert calls == [
        ("NodePrepareResources", newest.endpoint),
        ("NodeUnprepareResources", old.endpoint),
    ]
    assert kubelet.claim_info("default", "gpu").held is False
    with pytest.raises(RequestError, match=r"has no instance at /nowhere"):
        kubelet.prepare_claims(DRIVER, ["gpu"], endpoint="/nowhere")
    simulated_driver("nic.example.com")
    other = next(each for each in kubelet.dra_status().drivers if each.driver != DRIVER)
    with pytest.raises(RequestError, match=rf"{DRIVER} has no instance at {other.endpoint}"):
        kubelet.prepare_claims(DRIVER, ["gpu"], endpoint=other.endpoint)
    with pytest.raises(RequestError, match='"x" not found'):
        kubelet.prepare_claims(DRIVER, ["x"])
    with pytest.raises(RequestError, match=r"^invalid claim '/x'"):
        kubelet.prepare_claims(DRIVER, ["/x"])


def test_fault_of_one_instance(kubelet, simulated_driver):
    simulated_driver(uid="1")
    simulated_driver(uid="2")
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    old, newest = kubelet.dra_status().drivers
    # Like a plugin, an instance has the name of its socket. The driver's name is the resource.
    kubelet.faults.set(f"fail-call:rpc=NodePrepareResources,resource={DRIVER},plugin=dra-2.sock")
    with pytest.raises(RpcError, match="Unavailable"):
        kubelet.prepare_claims(DRIVER, ["gpu"], endpoint=newest.endpoint)
    found = kubelet.prepare_claims(DRIVER, ["gpu"], endpoint=old.endpoint)
    assert found["uid-gpu"].error == ""
