"""A kubelet as a node of an API server: pods and claims from their creation to their end."""

from __future__ import annotations

import pytest

from devicemanager import ManualClock, MockKubelet, Settings, WaitTimeout
from devicemanager.claims.dra.allocation import Allocator
from devicemanager.claims.errors import ClaimsUnavailable
from devicemanager.testing import ApiNode, device_class, pod_manifest
from tests.claims.dra.objects import claim, exactly, slice_
from tests.kubelet.dra.objects import DRIVER, pod

V1 = "resource.k8s.io/v1"


@pytest.fixture
def node():
    with ApiNode("worker") as started:
        yield started


@pytest.fixture
def mock_kubelet(node, tmp_path):
    settings = node.settings(tmp_path / "kubeconfig", Settings(durability="process"))
    with MockKubelet(settings=settings, clock=ManualClock(1e9)) as started:
        node.serve(started)
        yield started


@pytest.fixture
def kubelet(mock_kubelet):
    return mock_kubelet


@pytest.fixture
def api(node, kubelet):
    # After the start of the kubelet, which deletes the slices of its node.
    kubelet.wait_for_event("slices-wiped", text="deleted", after=0)
    for kind, value in [
        ("ResourceSlice", slice_("gpu-0", pool="mock")),
        ("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}}),
    ]:
        node.server.load({"apiVersion": V1, "kind": kind, **value})
    return node.server


def wait_until(server, condition):
    for _ in range(100):
        if found := condition():
            return found
        server.wait_for_change(server.version, 0.1, lambda: bool(condition()))
    raise AssertionError("not reached")


def phase(server, name="train"):
    return ((server.get("pods", name) or {}).get("status") or {}).get("phase")


def created(server):
    server.create("resourceclaims", {**claim(exactly("gpu"), name="gpu")})
    manifest = pod()
    del manifest["metadata"]["uid"]
    return server.create("pods", manifest)["metadata"]["uid"]


def test_pod_runs_with_its_claim_and_releases_it(api, kubelet, simulated_driver):
    driver = simulated_driver(DRIVER)
    uid = created(api)
    wait_until(api, lambda: phase(api) == "Running")
    (device,) = kubelet.claim_info("default", "gpu").devices
    assert (device.device, device.prepared) == ("gpu-0", True)
    statuses = api.get("pods", "train")["status"]["containerStatuses"]
    assert [each["ready"] for each in statuses] == [True]
    api.delete("pods", "train")
    wait_until(api, lambda: api.get("pods", "train") is None)
    assert not kubelet.has_pod(uid)
    assert [call.rpc for call in driver.calls] == ["NodePrepareResources", "NodeUnprepareResources"]
    wait_until(api, lambda: not api.get("resourceclaims", "gpu")["status"].get("reservedFor"))


def test_pod_waits_for_its_driver_and_is_explained(api, kubelet):
    uid = created(api)
    kubelet.wait_for_event("prepare-failed", after=0)
    found = kubelet.claim_info("default", "gpu")
    assert (found.state, found.pods) == ("no-driver", (uid,))
    wait_until(api, lambda: phase(api) == "Pending")


def test_reason_of_the_scheduler_is_an_event_once(api, kubelet, monkeypatch):
    def missing(*_):
        raise ClaimsUnavailable("install the extra claims")

    monkeypatch.setattr(Allocator, "allocate", missing)
    created(api)
    text = "pod default/train is unschedulable: 0/1 nodes are available; install the extra claims"
    found = kubelet.wait_for_event("pod-unschedulable", after=0)
    assert (found.message, found.is_warning) == (text, True)
    with pytest.raises(WaitTimeout, match=text):
        kubelet.wait_for_event("container-started", timeout=0)
    # The node compares its pods after each event.
    mark = kubelet.mark()
    api.create("pods", {**pod(claims={}), "metadata": {"name": "other"}})
    kubelet.wait_for_event("container-started", since=mark)
    assert len(kubelet.events.recent("pod-unschedulable")) == 1


def test_rejected_pod_fails(api, kubelet, simulated_plugin):
    simulated_plugin("vendor.com/gpu", 1)
    manifest = pod(claims={})
    manifest["spec"]["nodeName"] = "worker"
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"vendor.com/gpu": 2}}
    api.create("pods", manifest)
    wait_until(api, lambda: phase(api) == "Failed")


def test_extended_resource_is_served_by_the_plugin_or_by_dra(
    api, node, kubelet, simulated_driver, simulated_plugin
):
    simulated_driver(DRIVER)
    api.delete("deviceclasses", "gpu")
    api.load(device_class("gpu", extended_resource="vendor.com/gpu"))
    plugin = simulated_plugin("vendor.com/gpu", 1)
    wait_until(api, lambda: allocatable(api) == "1")
    for name in ("old", "new"):
        if name == "new":
            plugin.stop()
            wait_until(api, lambda: allocatable(api) == "0")
        api.create("pods", pod_manifest(name, {"vendor.com/gpu": 1}))
        wait_until(api, lambda pod=name: phase(api, pod) == "Running")
    old, new = (each.containers[0] for each in kubelet.pods().values())
    assert (len(old.devices), len(old.cdi_devices)) == (1, 0)
    assert (len(new.devices), len(new.cdi_devices)) == (0, 1)


def allocatable(server):
    return server.get("nodes", "worker")["status"]["allocatable"].get("vendor.com/gpu")


def test_status_is_written_only_after_changes(api, kubelet, simulated_driver):
    simulated_driver(DRIVER)
    created(api)
    wait_until(api, lambda: phase(api) == "Running")
    before = api.get("pods", "train")["metadata"]["resourceVersion"]
    kubelet.clock.advance(10)  # the conditions keep the times of their last change
    # All pods are compared with the kubelet's before the status of this one is written.
    api.create("pods", pod_manifest("later", {}))
    wait_until(api, lambda: phase(api, "later") == "Running")
    assert api.get("pods", "train")["metadata"]["resourceVersion"] == before
