"""The whole path of a claim: allocated, reserved, prepared, unprepared, released."""

from __future__ import annotations

import pytest

from devicemanager import RequestError
from devicemanager.apiserver import Controllers, FakeApiServer
from devicemanager.apiserver.scheduler import schedule
from devicemanager.claims import DoesNotFit
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from tests.claims.dra.objects import claim as wanted_claim
from tests.claims.dra.objects import exactly, slice_
from tests.kubelet.dra.objects import DRIVER, claim, pod
from tests.timing import wait_until

CLASS = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def offered(node, *names):
    """A slice of the kubelet's node."""
    made = slice_(*names, pool="mock", driver=DRIVER, nodeName=node.kubelet.settings.node_name)
    return {"kind": "ResourceSlice", **made}


def template(name="template", count=1):
    spec = wanted_claim(exactly(count=count))["spec"]
    return {"kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": spec}}


def v1(value):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **value}


def from_template(name):
    return pod(name, {"gpu": None})


def test_a_template_is_allocated_prepared_and_deleted_at_the_end(node):
    driver, kubelet = node.driver(), node.kubelet
    kubelet.resource_claims.offer(offered(node, "gpu-0", "gpu-1"), CLASS, template())
    admitted = kubelet.admit(from_template("train"))
    assert kubelet.pod("uid-train").running
    (made,) = kubelet.resource_claims.list()
    name = made["metadata"]["name"]
    assert name.startswith("train-gpu-")
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-train"
    assert made["status"]["reservedFor"] == [
        {"resource": "pods", "name": "train", "uid": "uid-train"}
    ]
    assert [each.claims[0][1] for each in driver.calls] == [name]
    uid = made["metadata"]["uid"]
    assert admitted.containers["main"].run_options.cdi_devices == (
        f"k8s.gpu.example.com/claim={uid}-gpu-0",
    )
    kubelet.terminate("uid-train")
    assert [each.rpc for each in driver.calls] == ["NodePrepareResources", "NodeUnprepareResources"]
    assert kubelet.resource_claims.list() == ()
    assert not kubelet._life.serving().dra.used()._pod_versions


def test_pods_get_different_devices_and_the_last_does_not_fit(node):
    node.driver()
    kubelet = node.kubelet
    kubelet.resource_claims.offer(offered(node, "gpu-0", "gpu-1"), CLASS, template())
    for name in ("a", "b"):
        kubelet.admit(from_template(name))
    devices = [
        each["status"]["allocation"]["devices"]["results"][0]["device"]
        for each in kubelet.resource_claims.list()
    ]
    assert sorted(devices) == ["gpu-0", "gpu-1"]
    with pytest.raises(DoesNotFit, match="pod default/c does not fit on node") as raised:
        kubelet.admit(from_template("c"))
    assert "devices wanted: 1, usable: 0; allocated to another claim" in str(raised.value)
    assert len(kubelet.resource_claims.list()) == 2
    kubelet.terminate("uid-a")
    assert kubelet.admit(from_template("c")).admitted


def test_claim_that_several_pods_name_is_reserved_for_each_of_them(node):
    kubelet, claims = node.kubelet, node.kubelet.resource_claims
    node.driver()
    claims.offer(offered(node, "gpu-0"), CLASS)
    claims.apply(v1(wanted_claim(name="shared")))

    def users():
        [claim] = claims.list()
        return [each["uid"] for each in claim.get("status", {}).get("reservedFor", ())]

    for name in ("a", "b"):
        assert kubelet.admit(pod(name, {"gpu": "shared"})).admitted
        assert kubelet.pod(f"uid-{name}").running
    assert users() == ["uid-a", "uid-b"]
    kubelet.terminate("uid-a")
    assert users() == ["uid-b"]
    kubelet.terminate("uid-b")
    assert users() == []


def test_claims_of_a_rejected_pod_are_released(nodes):
    node = nodes(node_allocatable={"cpu": 8})
    node.driver()
    claims = node.kubelet.resource_claims
    claims.offer(offered(node, "gpu-0", "gpu-1"), CLASS, template())
    claims.apply(v1(wanted_claim(name="own")))
    before = claims.list()
    too_large = from_template("train")
    too_large["spec"]["resourceClaims"].append({"name": "own", "resourceClaimName": "own"})
    too_large["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1000000"}
    assert node.kubelet.admit(too_large).reason == "OutOfcpu"
    assert claims.list() == before
    assert node.kubelet.admit(from_template("a")).admitted
    assert node.kubelet.admit(from_template("b")).admitted


def test_claims_of_a_pod_that_is_rejected_after_a_reboot_are_released(node):
    kubelet = node.kubelet
    kubelet.resource_claims.offer(offered(node, "gpu-0"), CLASS, template())
    needs_both = from_template("train")
    needs_both["spec"]["containers"][0]["resources"]["limits"] = {"vendor.com/nic": 1}
    settings = SimulationSettings(resource_name="vendor.com/nic", number_devices=1)
    with SimulatedPlugin(settings, kubelet.plugin_dir):
        kubelet.wait_for_resource("vendor.com/nic", 1)
        # Without a driver, the claim is allocated, but never prepared.
        assert kubelet.admit(needs_both).admitted
        assert len(kubelet.resource_claims.list()) == 1
        kubelet.reboot()
        assert kubelet.pod("uid-train").reason == "UnexpectedAdmissionError"
    assert kubelet.resource_claims.list() == ()


def test_claims_of_a_running_pod_stay_if_it_is_admitted_again(node):
    node.driver()
    claims = node.kubelet.resource_claims
    claims.offer(offered(node, "gpu-0", "gpu-1"), CLASS, template())
    node.kubelet.admit(from_template("train"))
    before = claims.list()
    with pytest.raises(RequestError, match="is already admitted"):
        node.kubelet.admit(from_template("train"))
    assert claims.list() == before


def test_a_claim_of_a_user_stays_without_its_devices(node):
    node.driver()
    kubelet = node.kubelet
    kubelet.resource_claims.offer(offered(node, "gpu-0"), CLASS)
    kubelet.admit(pod(), claims=v1(wanted_claim(name="gpu")))
    status = kubelet.resource_claim("default", "gpu")["status"]
    assert status["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    kubelet.terminate("uid-train")
    assert not kubelet.resource_claim("default", "gpu")["status"].get("allocation")


def test_a_claim_that_the_test_has_allocated_stays_as_it_is(node):
    node.driver()
    kubelet = node.kubelet
    kubelet.resource_claims.offer(offered(node, "gpu-0"), CLASS)
    kubelet.admit(pod(), claims=claim("gpu", "gpu-1"))
    before = kubelet.resource_claim("default", "gpu")
    kubelet.terminate("uid-train")
    assert kubelet.resource_claim("default", "gpu") == before


def test_a_missing_template_is_named(node):
    node.kubelet.resource_claims.offer(offered(node, "gpu-0"), CLASS)
    with pytest.raises(RequestError, match="ResourceClaimTemplate template does not exist"):
        node.kubelet.admit(from_template("train"))


def test_other_kinds_cannot_be_offered(node):
    with pytest.raises(RequestError, match="invalid kind 'Pod': use one of ResourceSlice"):
        node.kubelet.resource_claims.offer(CLASS, {"kind": "Pod", "metadata": {"name": "x"}})
    assert node.kubelet.resource_claims.objects("DeviceClass") == ()


def ready_node(server, name):
    server.create("nodes", {"metadata": {"name": name}})

    def ready(value):
        value["spec"]["taints"] = []
        value["status"] = {
            "allocatable": {"pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return value

    server.change("nodes", name, ready)
    server.change("nodes", name, ready, subresource="status")


def test_objects_of_an_api_server_take_the_same_path(nodes, tmp_path):
    with FakeApiServer() as server, Controllers(server):
        node = nodes(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))
        kubelet = node.kubelet
        driver = node.driver(
            claims=lambda namespace, name: server.get("resourceclaims", name, namespace)
        )
        ready_node(server, kubelet.settings.node_name)
        # The kubelet deletes the slices of its node at the start, in the background.
        kubelet.wait_for_event("slices-wiped", text="deleted", after=0)
        server.create("resourceslices", offered(node, "gpu-0"))
        server.create("deviceclasses", CLASS)
        server.create("resourceclaimtemplates", template())
        # The server sets the UID.
        del (wanted := from_template("train"))["metadata"]["uid"]
        server.create("pods", wanted)
        wait_until(lambda: "nodeName" in server.get("pods", "train")["spec"])
        bound = server.get("pods", "train")
        kubelet.admit(bound)
        uid = bound["metadata"]["uid"]
        assert kubelet.pod(uid).running
        (made,) = server.all("resourceclaims")
        assert [each.claims[0][1] for each in driver.calls] == [made["metadata"]["name"]]
        kubelet.terminate(uid)
        assert driver.calls[-1].rpc == "NodeUnprepareResources"
        server.delete("pods", "train", gracePeriodSeconds=0)
        wait_until(lambda: server.all("resourceclaims") == [])


RESOURCE = "vendor.com/gpu"


def test_a_node_migrates_from_a_plugin_to_a_driver_under_one_name(nodes, tmp_path):
    """Pods of both kinds run on the node, also after the plugin returns."""
    with FakeApiServer() as server:
        node = nodes(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))
        kubelet = node.kubelet
        name = kubelet.settings.node_name
        driver = node.driver(
            claims=lambda namespace, name: server.get("resourceclaims", name, namespace)
        )
        ready_node(server, name)
        # The kubelet deletes the slices of its node at the start, in the background.
        kubelet.wait_for_event("slices-wiped", text="deleted", after=0)
        server.create("resourceslices", offered(node, "gpu-0", "gpu-1"))
        server.create("deviceclasses", {**CLASS, "spec": {"extendedResourceName": RESOURCE}})

        def report_allocatable():
            """Report the plugin's devices, as the kubelet of a cluster does."""

            def changed(value):
                value["status"]["allocatable"][RESOURCE] = str(allocatable())
                return value

            server.change("nodes", name, changed, subresource="status")

        def allocatable():
            return kubelet.allocatable().get(RESOURCE, 0)

        def run(pod_name):
            container = {"name": "main", "image": "i", "resources": {"limits": {RESOURCE: "1"}}}
            spec = {"containers": [container], "restartPolicy": "Never"}
            server.create("pods", {"metadata": {"name": pod_name}, "spec": spec})
            report_allocatable()
            schedule(server)
            bound = server.get("pods", pod_name)
            assert bound["spec"]["nodeName"] == name
            assert kubelet.admit(bound).admitted
            return bound["metadata"]["uid"]

        def plugin():
            settings = SimulationSettings(resource_name=RESOURCE, number_devices=2)
            return SimulatedPlugin(settings, kubelet.plugin_dir)

        with plugin():
            kubelet.wait_for_resource(RESOURCE, 2)
            by_plugin = run("by-plugin")
            assert server.all("resourceclaims") == []
            assert driver.calls == ()
        kubelet.wait_for(lambda: allocatable() == 0)
        by_driver = run("by-driver")
        (claim_made,) = server.all("resourceclaims")
        assert [each.claims[0][1] for each in driver.calls] == [claim_made["metadata"]["name"]]
        with plugin():
            kubelet.wait_for(lambda: allocatable() == 2)
            again = run("by-plugin-again")
            assert len(server.all("resourceclaims")) == 1
            kubelet.terminate(by_driver)
            assert driver.calls[-1].rpc == "NodeUnprepareResources"
        assert kubelet.pod(by_plugin).running
        assert kubelet.pod(again).running
        assert [each.rpc for each in kubelet.calls.all()].count("Allocate") == 2
