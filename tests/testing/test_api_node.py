"""A kubelet as a node of an API server: pods and claims from their creation to their end."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import attrs
import pytest

from devicemanager import ManualClock, MockKubelet, Settings, WaitTimeout
from devicemanager.claims.dra.allocation import Allocator
from devicemanager.claims.errors import ClaimsUnavailable
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventStream
from devicemanager.testing import ApiNode, device_class, pod_manifest
from devicemanager.testing.api_node import _node_object
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


# -- rounds of the node, without its thread and without a kubelet ------------------------------


class Kubelet:
    """Kubelet that notes what the node does with its pods."""

    def __init__(self):
        self.clock = ManualClock(1e9)
        self.events = EventStream(self.clock)
        self.done = []
        self.known = {}
        self.rejects = False
        self.keeps = False
        self.counts = ({}, {})

    def node_status(self):
        return SimpleNamespace(capacity=self.counts[0], allocatable=self.counts[1])

    def pods(self):
        return dict(self.known)

    def has_pod(self, uid):
        return uid in self.known

    def admit(self, pod):
        self.done.append(("admit", pod["metadata"]["name"]))
        if self.rejects:
            raise RequestError("no space")
        self.known[pod["metadata"]["uid"]] = pod

    def terminate(self, uid):
        self.done.append(("terminate", self.known[uid]["metadata"]["name"]))
        if self.keeps:
            raise RequestError("is being terminated")
        del self.known[uid]


@pytest.fixture
def alone(monkeypatch):
    """A node that is not started, whose Node object and pods are on its server."""
    node = ApiNode("worker")
    node.server.load(_node_object("worker"))
    monkeypatch.setattr(
        "devicemanager.testing.api_node._status", lambda kubelet, uid: {"phase": "Running"}
    )
    return node


def load(node, name, node_name="worker", **metadata):
    made = pod_manifest(name, {}, uid=f"uid-{name}")
    made["metadata"] |= metadata
    if node_name:
        made["spec"]["nodeName"] = node_name
    return node.server.load(made)


def test_node_object_has_a_hostname_and_is_ready():
    amounts = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250"}
    assert _node_object("n") == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "allocatable": amounts,
            "capacity": amounts,
        },
    }


def test_node_is_reported_after_changes_only(alone):
    kubelet, before = Kubelet(), alone.server.get("nodes", "worker")["status"]
    for counts in (({}, {}), ({"v.com/g": 3}, {"v.com/g": 2})):
        kubelet.counts = counts
        alone._report(kubelet)
        version = alone.server.version
        alone._report(kubelet)
        assert alone.server.version == version
        status = alone.server.get("nodes", "worker")["status"]
        assert status["conditions"] == before["conditions"]
        for name, given in zip(("capacity", "allocatable"), counts, strict=True):
            texts = {key: str(count) for key, count in given.items()}
            assert status[name] == before[name] | texts


def test_pods_of_this_node_are_admitted_once(alone):
    kubelet = Kubelet()
    load(alone, "mine")
    load(alone, "other", "elsewhere")
    load(alone, "pending", "")
    alone._sync(kubelet)
    alone._sync(kubelet)
    assert kubelet.done == [("admit", "mine")]
    assert phase(alone.server, "mine") == "Running"
    assert phase(alone.server, "other") == phase(alone.server, "pending") != "Running"


def test_status_keeps_fields_of_other_writers_and_is_written_once(alone, monkeypatch):
    kubelet = Kubelet()
    load(alone, "mine")
    claims = [{"name": "gpu", "resourceClaimName": "gpu-x"}]
    alone.server.change(
        "pods",
        "mine",
        lambda old: {**old, "status": {**old["status"], "resourceClaimStatuses": claims}},
        subresource="status",
    )
    alone._sync(kubelet)
    status = alone.server.get("pods", "mine")["status"]
    assert (status["phase"], status["resourceClaimStatuses"]) == ("Running", claims)
    version = alone.server.version
    alone._sync(kubelet)
    assert alone.server.version == version
    monkeypatch.setattr(
        "devicemanager.testing.api_node._status", lambda kubelet, uid: {"phase": "Succeeded"}
    )
    alone._sync(kubelet)
    assert phase(alone.server, "mine") == "Succeeded"


def test_rejected_pod_fails_with_the_reason(alone):
    kubelet = Kubelet()
    kubelet.rejects = True
    load(alone, "mine")
    for _ in range(2):
        alone._sync(kubelet)
        status = alone.server.get("pods", "mine")["status"]
        assert (status["phase"], status["message"]) == ("Failed", "no space")
    assert kubelet.done == [("admit", "mine")]


def test_pod_that_is_deleted_is_terminated_and_removed(alone):
    kubelet = Kubelet()
    load(alone, "mine")
    alone._sync(kubelet)
    alone.server.delete("pods", "mine")
    assert alone.server.get("pods", "mine")["metadata"]["deletionTimestamp"]
    kubelet.keeps = True  # its claims cannot be unprepared
    alone._sync(kubelet)
    assert alone.server.get("pods", "mine") is not None
    kubelet.keeps = False
    alone._sync(kubelet)
    assert kubelet.done == [("admit", "mine"), *[("terminate", "mine")] * 2]
    assert alone.server.get("pods", "mine") is None
    # A pod of the same UID is a new one.
    load(alone, "mine")
    alone._sync(kubelet)
    assert kubelet.done[3:] == [("admit", "mine")]


def test_pod_that_has_vanished_is_terminated_unless_it_is_not_of_the_server(alone):
    kubelet = Kubelet()
    load(alone, "mine")
    alone._sync(kubelet)
    kubelet.known["static"] = pod_manifest("static", uid="static")
    alone.server.delete("pods", "mine", gracePeriodSeconds=0)
    alone._sync(kubelet)
    assert kubelet.done == [("admit", "mine"), ("terminate", "mine")]
    assert list(kubelet.known) == ["static"]


def test_each_reason_of_the_scheduler_is_reported_once(alone):
    kubelet = Kubelet()

    def unschedulable(message, reason="Unschedulable"):
        condition = {"type": "PodScheduled", "status": "False", "reason": reason} | message
        alone.server.change(
            "pods",
            "mine",
            lambda old: {**old, "status": {**old["status"], "conditions": [condition]}},
            subresource="status",
        )
        for _ in range(2):
            alone._tell(kubelet)
        return [event.message for event in kubelet.events.recent("pod-unschedulable")]

    load(alone, "mine", "")
    load(alone, "bound")
    text = "pod default/mine is unschedulable: "
    assert unschedulable({"message": "first"}) == [f"{text}first"]
    assert unschedulable({"message": "other"}) == [f"{text}first", f"{text}other"]
    assert unschedulable({"message": "x"}, "SchedulerError") == [f"{text}first", f"{text}other"]
    assert unschedulable({})[2:] == [text]
    alone.server.bind("mine", "worker")
    assert unschedulable({"message": "late"})[3:] == []


def test_settings_name_the_node_and_its_server(tmp_path):
    with ApiNode("worker") as node:
        made = node.settings(tmp_path / "kubeconfig")
        assert made == attrs.evolve(
            Settings(), kubeconfig=tmp_path / "kubeconfig", node_name="worker"
        )
        assert node.server.url in (tmp_path / "kubeconfig").read_text()
        given = Settings(durability="process", node_name="x")
        made = node.settings(tmp_path / "kubeconfig", given)
        assert (made.durability, made.node_name) == ("process", "worker")


def test_nothing_runs_after_the_node_has_stopped():
    before = set(threading.enumerate())
    kubelet = SimpleNamespace(events=EventStream(ManualClock()), is_serving=False)
    with ApiNode("worker") as node:
        node.serve(kubelet)
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert "api-node" in names
        port = node.server.url.rpartition(":")[2]
    left = [each for each in set(threading.enumerate()) - before if each.is_alive()]
    assert [each.name for each in left if each.name == "api-node"] == []
    with ApiNode("worker", port=int(port)) as node:  # the port is free again
        assert node.server.url.endswith(f":{port}")
    kubelet.events.publish("started", "no subscriber is left")
    assert not node._changed.is_set()
