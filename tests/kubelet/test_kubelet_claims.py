"""Structured claims in a MockKubelet: with plugin devices, over restarts, in PodResources."""

import pytest

from devicemanager import MockKubelet, Settings
from devicemanager.claims.drivers import FakeDriver
from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.core.devices import Device
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.testing.fakes import FakePlugin
from podresources import ClaimResource
from podresources.client import PodResourcesClient
from tests.claims.documents import claim, device_class, pool

GPU = ResourceName("vendor.com/gpu")
DRIVER = "d.example.com"


@pytest.fixture
def kubelet(tmp_path_factory):
    with MockKubelet(settings=Settings(node_name="n0", durability="process")) as running:
        running.publish(pool())
        running.define(device_class())
        for name in ("x", "y"):
            running.claim(claim(name))
        running.claim(claim("both", {"deviceClass": "gpu", "requests": {"count": 2}}))
        yield running


def connect(kubelet):
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list([Device(DeviceId("gpu-0"))])
    return plugin


def manifest(name, *claims, gpus=0, uses=None):
    used = claims if uses is None else uses
    resources = {"claims": [{"name": each} for each in used]}
    if gpus:
        resources["limits"] = {GPU: gpus}
    spec = {
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        "containers": [{"name": "main", "image": "i", "resources": resources}],
    }
    meta = {"name": name, "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def allocated(kubelet, name):
    allocation = kubelet.claims.claim(f"default/{name}").allocation
    return [each.device.name for each in allocation.grants] if allocation else []


def test_pod_gets_claims_and_devices(kubelet):
    connect(kubelet)
    admission = kubelet.admit(manifest("p", "x", "y", gpus=1, uses=["x"]))
    assert admission.containers["main"].claims == {"x": ("p/a",)}
    assert (allocated(kubelet, "x"), kubelet.devices("p")) == (["a"], {"main": {GPU: ["gpu-0"]}})


def test_rejected_devices_free_the_claims(kubelet):
    connect(kubelet)
    rejected = kubelet.admit(manifest("p", "x", gpus=2))
    assert not rejected.admitted and GPU in rejected.message
    assert allocated(kubelet, "x") == []
    assert kubelet.admit(manifest("q", "both")).admitted


def test_rejected_claims_allocate_no_devices(kubelet):
    plugin = connect(kubelet)
    assert kubelet.admit(manifest("p", "both")).admitted
    rejected = kubelet.admit(manifest("q", "x", gpus=1))
    assert (rejected.admitted, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert "allocated to claim default/both" in rejected.message
    assert not [call for call in plugin.calls if call.method == "Allocate"]
    assert kubelet.admit(manifest("r", gpus=1)).admitted


def test_reset_deletes_pods_faults_and_claims_and_starts_the_kubelet(kubelet):
    kubelet.admit(manifest("p", "x"))
    kubelet.faults.set("fail-call")
    kubelet.stop()
    kubelet.reset()
    assert kubelet.is_serving
    assert (kubelet.pods(), kubelet.faults.list()) == ({}, ())
    assert (kubelet.claims.pools(), kubelet.claims.classes()) == ((), ())


def test_ended_pods_free_their_claims(kubelet):
    ends = manifest("p", "x")
    ends["spec"]["restartPolicy"] = "Never"
    kubelet.admit(ends)
    kubelet.admit(manifest("q", "y"))
    kubelet.finish("p")
    assert (allocated(kubelet, "x"), allocated(kubelet, "y")) == ([], ["b"])
    kubelet.terminate("q")
    assert allocated(kubelet, "y") == []


def test_claims_survive_restart_and_reboot(kubelet):
    kubelet.admit(manifest("p", "y"))
    kubelet.admit(manifest("q", "x"))
    for change in (kubelet.restart, kubelet.reboot):
        change()
        assert (allocated(kubelet, "y"), allocated(kubelet, "x")) == (["a"], ["b"])
        assert kubelet.claims.is_sources_ready
    assert not kubelet.admit(manifest("r", "both")).admitted


def test_objects_can_be_applied_while_the_kubelet_is_stopped(kubelet):
    kubelet.stop()
    kubelet.publish(pool("q", ["c"]))
    kubelet.claim(claim("z", {"deviceClass": "gpu", "requests": {"count": 3}}))
    kubelet.start()
    assert kubelet.admit(manifest("p", "z")).admitted
    assert allocated(kubelet, "z") == ["a", "b", "c"]


def test_second_kubelet_waits_for_the_pods_of_the_first(tmp_path):
    settings = Settings(node_name="n0", durability="process")
    with MockKubelet(tmp_path, settings) as first:
        first.publish(pool())
        first.define(device_class())
        first.claim(claim("x"))
        first.claim(claim("y"))
        first.admit(manifest("p", "x"))
        first.admit(manifest("q", "y"))
    with MockKubelet(tmp_path, settings) as second:
        second.publish(pool())
        second.define(device_class())
        second.claim(claim("x"))
        assert not second.claims.is_sources_ready
        admission = second.admit(manifest("p", "x"))
        assert admission.admitted and allocated(second, "x") == ["a"]
        assert second.pods()["p"].running == {"main"}
        second.sources_ready()
        with pytest.raises(ClaimsError):
            second.claims.claim("default/y")


def test_prepared_devices_reach_container_and_pod_resources(kubelet):
    kubelet.claims.set_driver(DRIVER, FakeDriver("gpu", failures=1))
    admission = kubelet.admit(manifest("p", "x"))
    assert admission.admitted
    assert "the fake driver is set to fail" in admission.containers["main"].error
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert [c.dynamic_resources for c in client.get("p", "default").containers] == [()]
        options = kubelet.start_container("p", "main")
        assert options.cdi_devices[0] == "k8s.d.example.com/gpu=common"
        assert options.cdi_devices[1].endswith("-a")
        (shown,) = client.get("p", "default").containers[0].dynamic_resources
        assert (shown.claim_name, shown.claim_namespace) == ("x", "default")
        assert shown.claim_resources == (ClaimResource(DRIVER, "p", "a", options.cdi_devices),)


def test_container_lists_only_the_claims_that_it_names(kubelet):
    kubelet.admit(manifest("p", "x", "y", uses=["y"]))
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        (pod,) = client.list()
        shown = [each.claim_name for each in pod.containers[0].dynamic_resources]
        assert shown == ["y"]
        kubelet.terminate("p")
        assert list(client.list()) == []


def test_device_removed_from_its_pool_is_unhealthy(kubelet):
    connect(kubelet)
    kubelet.admit(manifest("p", "both", gpus=1))

    def status():
        return {
            resource.name: [(each.resource_id, each.health) for each in resource.resources]
            for resource in kubelet.allocated_resources_status("p")["main"]
        }

    healthy = [("d.example.com/p/a", "Healthy"), ("d.example.com/p/b", "Healthy")]
    assert status() == {"claim:both": healthy, GPU: [("gpu-0", "Healthy")]}
    kubelet.publish(pool(devices=["b"]))
    assert status()["claim:both"] == [("d.example.com/p/a", "Unhealthy"), healthy[1]]


def test_publish_accepts_every_kind_of_source(kubelet, tmp_path):
    file = tmp_path / "pools.yaml"
    file.write_text("apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DevicePool\n"
                    "metadata: {name: file}\nspec: {driver: d, devices: []}\n")  # fmt: skip
    kubelet.publish(file)
    kubelet.publish(str(file))
    kubelet.publish(file.read_text().replace("file", "text"))
    assert [each.name for each in kubelet.claims.pools()] == ["file", "p", "text"]
    kubelet.define(kubelet.claims.classes()[0])
    for bad, line in (
        (7, "expected a dict, YAML text, a path"),
        (tmp_path / "none.yaml", "none.yaml: No such file"),
        ("none.yaml", "none.yaml: No such file"),
        (tmp_path, "a directory, not a regular file"),
        ("a\0.yaml", "invalid path"),
        (pool(driver=""), "spec.driver: Required value"),
    ):
        with pytest.raises(InvalidObject, match=line):
            kubelet.publish(bad)


def test_allocated_claim_cannot_be_changed(kubelet):
    kubelet.admit(manifest("p", "x"))
    with pytest.raises(
        ClaimsError, match=r'^DeviceClaim "default/x": spec: Forbidden: the claim is allocated'
    ):
        kubelet.claim(claim("x", {"deviceClass": "gpu", "requests": {"count": 2}}))
    kubelet.terminate("p")
    kubelet.claim(claim("x", {"deviceClass": "gpu", "requests": {"count": 2}}))
    assert kubelet.admit(manifest("q", "x")).admitted and allocated(kubelet, "x") == ["a", "b"]


def test_admin_access_needs_a_namespace_of_the_settings():
    settings = Settings(node_name="n0", claims_admin_namespaces={"ops"}, durability="process")
    with MockKubelet(settings=settings) as kubelet:
        kubelet.publish(pool())
        kubelet.define(device_class(adminAccess=True))
        kubelet.claim(claim("x"))
        rejected = kubelet.admit(manifest("p", "x"))
        assert 'namespace "default" must not use it' in rejected.message
