"""ResourceClaims in memory, in several API versions, and from an API server."""

from __future__ import annotations

import threading

import pytest
import yaml

from devicemanager import ManualClock, MockKubelet, RequestError, Settings, StartError
from devicemanager.apiserver import FakeApiServer
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.dra import api_slices
from devicemanager.kubelet.dra.claim_source import claim_of
from devicemanager.objects.manifests import ManifestError
from tests.kubelet.dra.objects import claim, pod

BETA1 = claim(
    "gpu", "gpu-0", spec={"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}
) | {"apiVersion": "resource.k8s.io/v1beta1"}


def forms():
    yield yaml.safe_dump(claim("gpu", "gpu-0"))
    yield [claim("gpu", "gpu-0")]
    yield claim("gpu", "gpu-0") | {"apiVersion": "resource.k8s.io/v1beta2"}
    yield BETA1
    from kubernetes import client

    if hasattr(client, "V1beta1ResourceClaim"):
        api = client.ApiClient()
        yield api._ApiClient__deserialize(BETA1, "V1beta1ResourceClaim")


@pytest.mark.parametrize("source", [*forms()])
def test_claims_in_several_forms(node, source):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.admit(pod(), claims=source)
    assert driver.prepared == {"uid-gpu": ("gpu-0",)}
    assert kubelet.resource_claim("default", "gpu")["apiVersion"] == "resource.k8s.io/v1"


def test_claims_beside_the_pod_in_a_manifest(node):
    driver = node.driver()
    node.kubelet.admit("---\n".join(map(yaml.safe_dump, [pod(), claim("gpu", "gpu-0")])))
    assert driver.prepared == {"uid-gpu": ("gpu-0",)}


@pytest.mark.parametrize("source", [5, claim() | {"metadata": {}}])
def test_pod_with_an_invalid_claim_is_not_admitted(node, source):
    with pytest.raises(ManifestError, match=r"^(invalid ResourceClaim: |ResourceClaim: metadata)"):
        node.kubelet.admit(pod(), claims=source)
    assert not node.kubelet.pods()


def test_claim_that_the_pod_does_not_use_is_an_error(node):
    with pytest.raises(RequestError, match="does not use ResourceClaim other"):
        node.kubelet.admit(pod(), claims=[claim("gpu", "gpu-0"), claim("other", "gpu-1")])


def test_claims_can_be_changed_later(node):
    claims = node.kubelet.resource_claims
    claims.apply(claim("gpu", "gpu-0"))
    claims.reserve("default", "gpu", "u")
    claims.unreserve("default", "gpu", "u")
    assert claims.get("default", "gpu")["status"]["reservedFor"] == []
    claims.deallocate("default", "gpu")
    assert claims.get("default", "gpu")["status"] == {}
    claims.delete("default", "gpu")
    assert claims.list() == ()
    with pytest.raises(RequestError, match="no ResourceClaim has the name default/gpu"):
        claims.replace("default", "gpu", "new")


def test_reset_deletes_claims_their_faults_and_offered_objects(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.resource_claims.apply(claim("gpu", "gpu-0"))
    kubelet.resource_claims.fail("default", "gpu", "no")
    kubelet.resource_claims.offer({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
    kubelet.reset()
    assert kubelet.resource_claims.list() == ()
    assert kubelet.resource_claims.objects("DeviceClass") == ()
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert driver.prepared == {"uid-gpu": ("gpu-0",)}


def test_each_change_of_an_object_is_an_event(node):
    node.driver()
    kubelet = node.kubelet
    seen = []
    kubelet.events.subscribe(
        lambda event: event.kind == "dra-objects-changed" and seen.append(event.message)
    )

    def changes():
        found = list(seen)
        seen.clear()
        return found

    gpu = "ResourceClaim default/gpu"
    kubelet.reset()
    assert changes() == []
    kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    assert changes() == [f"{gpu} applied"]
    with pytest.raises(RequestError, match="already admitted"):
        kubelet.admit(pod(), claims=[claim("gpu", "gpu-1")])
    assert changes() == [f"{gpu} applied", f"{gpu} restored"]
    with pytest.raises(RequestError, match="already admitted"):
        kubelet.admit(pod(), claims=claim("other"), reserve=False)
    other = "ResourceClaim default/other"
    assert changes() == [f"{other} applied", f"{other} deleted"]
    kubelet.reset()
    assert changes() == ["all objects of resource.k8s.io deleted"]
    assert kubelet.resource_claims.list() == ()


@pytest.fixture
def server(tmp_path):
    with FakeApiServer() as made:
        path = tmp_path / "kubeconfig"
        yield made, made.kubeconfig(path)


def test_claims_and_slices_of_an_api_server(server, directory):
    api, kubeconfig = server
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "mock",
        "pool": {"name": "mock", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    api.create("nodes", {"metadata": {"name": "mock"}})
    api.create("resourceslices", {"metadata": {"name": "s1"}, "spec": spec})
    settings = Settings(kubeconfig=kubeconfig)
    with MockKubelet(directory, settings, clock=ManualClock()) as kubelet:
        # At its start, the kubelet deletes all slices of its node.
        kubelet.wait_for_event("slices-wiped", text="deleted", after=0)
        assert api.all("resourceslices") == []
        given = claim("gpu", "gpu-0")
        del given["metadata"]["uid"]
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "g"}}]}}
        api.create("resourceclaims", {**given, "spec": spec, "status": {}})

        def stored(namespace, name):
            return api.get("resourceclaims", name, namespace)

        with SimulatedDriver(root=kubelet.root, claims=stored) as driver:
            driver.wait_registered()
            kubelet.admit(pod())
            [failed] = kubelet.events.recent("prepare-failed")
            assert "not allowed to use ResourceClaim gpu" in failed.message
            consumer = {"resource": "pods", "name": "train", "uid": "uid-train"}
            status = {**given["status"], "reservedFor": [consumer]}
            api.change(
                "resourceclaims",
                "gpu",
                lambda found: {**found, "status": status},
                subresource="status",
            )
            kubelet.resync("uid-train")
            assert kubelet.pod("uid-train").running
            with pytest.raises(RequestError, match="ResourceClaims come from the API server of"):
                kubelet.admit(pod("b"), claims=claim("x"))


def test_missing_kubeconfig_is_one_line(directory):
    with pytest.raises(StartError, match=r"^kubeconfig .*: No such file"):
        MockKubelet(directory, Settings(kubeconfig=directory / "no")).start()


def test_end_of_a_pod_does_not_wait_for_the_call_that_prepares_its_claims(node, monkeypatch):
    driver, kubelet = node.driver(), node.kubelet
    driver.faults.hang_after = True
    hanging, hang = threading.Event(), driver._hang

    def noted(context):
        hanging.set()
        hang(context)

    monkeypatch.setattr(driver, "_hang", noted)
    admitting = threading.Thread(
        target=lambda: kubelet.admit(pod(), claims=claim("gpu", "gpu-0")), daemon=True
    )
    admitting.start()
    # Only now the fault has been read: the claims are prepared a moment earlier.
    assert hanging.wait(60)
    driver.faults.hang_after = False
    kubelet.terminate("uid-train")
    assert not kubelet.has_pod("uid-train")
    assert [call.rpc for call in driver.calls] == ["NodePrepareResources", "NodeUnprepareResources"]
    mark = kubelet.mark()
    driver.stop()
    kubelet.wait_for_event("prepare-failed", since=mark)
    admitting.join(10)
    assert driver.prepared == {}


def test_response_for_a_pod_that_has_ended_is_dropped(node):
    """Another pod that waits for the same claim then calls the driver again."""
    shared = claim("gpu", "gpu-0")
    preparing, released = threading.Event(), threading.Event()
    released.set()

    def stored(namespace, name):
        preparing.set()
        assert released.wait(60)
        return shared

    driver, kubelet = node.driver(claims=stored), node.kubelet
    kubelet.resource_claims.apply(shared)
    for uid in ("uid-waiting", "uid-ended"):
        kubelet.resource_claims.reserve("default", "gpu", uid)
    driver.faults.entry_error = "no power"
    kubelet.admit(pod("waiting"))
    driver.faults.entry_error = ""
    preparing.clear()
    released.clear()
    admitting = threading.Thread(target=lambda: kubelet.admit(pod("ended")), daemon=True)
    admitting.start()
    assert preparing.wait(60)
    kubelet.terminate("uid-ended")
    mark = kubelet.mark()
    released.set()
    failed = kubelet.wait_for_event("prepare-failed", pod="uid-ended", since=mark)
    assert "rpc error: code = Canceled desc = context canceled" in failed.message
    admitting.join(60)
    kubelet.resync("uid-waiting")
    assert kubelet.pod("uid-waiting").running
    assert [call.rpc for call in driver.calls] == ["NodePrepareResources"] * 3


def test_stop_ends_the_wait_for_a_shared_claim(node, monkeypatch):
    driver, kubelet = node.driver(), node.kubelet
    driver.faults.hang = True
    waiting, is_preparing = threading.Event(), ClaimCache.is_preparing

    def noted(cache, key):
        if found := is_preparing(cache, key):
            waiting.set()
        return found

    monkeypatch.setattr(ClaimCache, "is_preparing", noted)
    shared, mark = claim("gpu", "gpu-0"), kubelet.mark()

    def admit(name):
        thread = threading.Thread(target=lambda: kubelet.admit(pod(name), claims=shared))
        thread.daemon = True
        thread.start()
        return thread

    first = admit("first")
    calls = kubelet.calls
    kubelet.wait_for(lambda: any(c.rpc == "NodePrepareResources" for c in calls.in_progress))
    second = admit("second")
    assert waiting.wait(60)
    kubelet.stop()
    second.join(60)
    assert not second.is_alive()
    first.join(60)
    found = kubelet.wait_for_event("prepare-failed", pod="uid-second", since=mark)
    assert "the kubelet is stopping" in found.message


def test_pod_of_structured_claims_is_not_served_by_drivers(node):
    from tests.claims import documents

    driver, kubelet = node.driver(), node.kubelet
    kubelet.publish(documents.pool(nodeName="mock"))
    kubelet.define(documents.device_class())
    kubelet.claim(documents.claim("x"))
    found = kubelet.admit(pod(claims={"x": "x"}))
    assert found.containers["main"].claims["x"]
    assert driver.calls == ()


def test_k41_static_pod_with_claims_is_refused(node):
    node.driver()
    from devicemanager.objects.manifests import parse

    with pytest.raises(RequestError, match=r"^static pods may not use ResourceClaims$"):
        node.kubelet.check_static(parse(pod()))
    node.kubelet.check_static(parse(pod(claims={})))


@pytest.mark.parametrize(
    "hostile",
    [
        {"metadata": {"name": 5}},
        {"metadata": {"name": "gpu", "uid": ["u"]}},
        claim(status={"allocation": {"devices": {"results": [{"driver": ["x"]}]}}}),
        claim(
            status={
                "allocation": {
                    "devices": {"results": [{"driver": "x", "skipNodeOperations": [{}]}]}
                }
            }
        ),
        claim(status={"reservedFor": [{"uid": 7}]}),
    ],
)
def test_claim_of_a_hostile_api_server_is_an_error_of_the_fetch(hostile):
    with pytest.raises(ClaimFetchError, match="cannot be decoded: TypeError"):
        claim_of(hostile)


@pytest.mark.parametrize("reserve", [True, False])
def test_claims_of_a_pod_that_is_not_admitted_are_not_added(nodes, reserve):
    kubelet = nodes(strict=True).kubelet
    rejected = pod()
    rejected["spec"]["containers"][0]["resources"]["limits"] = {"vendor.com/gpu": "1"}
    assert not kubelet.admit(rejected, claims=claim("gpu", "gpu-0"), reserve=reserve).admitted
    assert kubelet.resource_claims.list() == ()
    kubelet.admit(pod("a"), claims=claim("gpu", "gpu-0"))
    before = kubelet.resource_claims.list()
    with pytest.raises(RequestError, match="already"):
        kubelet.admit(pod("a"), claims=claim("gpu", "gpu-1"), reserve=reserve)
    assert kubelet.resource_claims.list() == before


def a_slice(name, node="mock", *devices):
    spec = {
        "driver": "gpu.example.com",
        "nodeName": node,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": each} for each in devices],
    }
    return {"metadata": {"name": name}, "spec": spec}


def slices_of(kubelet):
    return {each.name: each.devices for each in kubelet.dra_status().slices}


@pytest.fixture
def api_kubelet(server, directory):
    """A kubelet that has deleted the slices of its node, and its API server."""
    api, kubeconfig = server
    api.create("nodes", {"metadata": {"name": "mock"}})
    settings = Settings(kubeconfig=kubeconfig)
    with MockKubelet(directory, settings, clock=ManualClock()) as kubelet:
        kubelet.wait_for_event("slices-wiped", text="deleted", after=0)
        yield kubelet, api


def test_status_has_the_slices_of_the_node_on_the_api_server(api_kubelet):
    kubelet, api = api_kubelet
    api.create("resourceslices", a_slice("s1", "mock", "gpu-0", "gpu-1"))
    api.create("resourceslices", a_slice("s2", "other", "gpu-0"))
    assert slices_of(kubelet) == {"s1": ("gpu-0", "gpu-1")}
    mark = kubelet.mark()
    api.create("resourceslices", a_slice("s3", "mock", "gpu-2"))
    kubelet.wait_for_event("dra-objects-changed", text="ResourceSlice s3 added", since=mark)
    assert slices_of(kubelet) == {"s1": ("gpu-0", "gpu-1"), "s3": ("gpu-2",)}
    api.delete("resourceslices", "s1")
    kubelet.wait_for_event("dra-objects-changed", text="ResourceSlice s1 deleted", since=mark)
    assert slices_of(kubelet) == {"s3": ("gpu-2",)}
    # The next process of the kubelet deletes the slices, and has a watch of its own.
    kubelet.restart()
    kubelet.wait_for_event("slices-wiped", text="deleted", since=mark)
    assert slices_of(kubelet) == {}


def test_status_of_a_kubelet_whose_api_server_does_not_respond(api_kubelet, monkeypatch):
    monkeypatch.setattr(api_slices, "_FIRST_LIST", 0.01)
    kubelet, api = api_kubelet
    api.stop()
    assert slices_of(kubelet) == {}
