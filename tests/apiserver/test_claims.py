"""Claims of pods on the API server: made, allocated, reserved, released and deleted."""

from __future__ import annotations

import pytest

from devicemanager.apiserver.claim_controller import ClaimController
from devicemanager.apiserver.scheduler import schedule
from tests.claims.dra.objects import claim, device, exactly, slice_

GPU = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "vendor.com/gpu"}}


def node(server, name="worker"):
    server.create("nodes", {"metadata": {"name": name}})

    def schedulable(value):
        value["spec"]["taints"] = []
        value["status"] = {
            "allocatable": {"pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return value

    server.change("nodes", name, schedulable)
    server.change("nodes", name, schedulable, subresource="status")


def pod(name="train", claims=(), limits=None, **spec):
    container = {"name": "main", "image": "x"}
    if limits:
        container["resources"] = {"limits": limits, "requests": limits}
    if claims:
        container["resources"] = {"claims": [{"name": each["name"]} for each in claims]}
        spec["resourceClaims"] = list(claims)
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def template(name="gpus", count=1):
    spec = claim(exactly(count=count))["spec"]
    return {"metadata": {"name": name}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}


FROM_TEMPLATE = {"name": "devices", "resourceClaimTemplateName": "gpus"}


@pytest.fixture
def cluster(apiserver):
    """A server with a node, a class and two devices; call it to let the controllers run."""
    controller = ClaimController()

    def reconcile():
        for _ in range(3):
            controller.reconcile(apiserver)
            schedule(apiserver)

    node(apiserver)
    apiserver.create("deviceclasses", GPU)
    apiserver.create("resourceslices", slice_("d0", "d1", pool="worker"))
    apiserver.create("resourceclaimtemplates", template())
    return reconcile


def devices(server, name):
    found = server.get("resourceclaims", name)
    results = found["status"]["allocation"]["devices"]["results"]
    return [each["device"] for each in results]


def finish(server, name):
    def finished(value):
        value["status"]["phase"] = "Succeeded"
        return value

    server.change("pods", name, finished, subresource="status")


def test_a_template_becomes_a_claim_with_devices_for_the_pod(apiserver, cluster):
    made = apiserver.create("pods", pod(claims=[FROM_TEMPLATE]))
    cluster()
    bound = apiserver.get("pods", "train")
    assert bound["spec"]["nodeName"] == "worker"
    ((entry, name),) = [tuple(each.values()) for each in bound["status"]["resourceClaimStatuses"]]
    assert entry == "devices"
    assert name.startswith("train-devices-")
    found = apiserver.get("resourceclaims", name)
    metadata = found["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "devices"}
    assert metadata["labels"] == {"a": "b"}
    assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert found["status"]["reservedFor"] == [
        {"resource": "pods", "name": "train", "uid": made["metadata"]["uid"]}
    ]
    assert found["status"]["allocation"]["allocationTimestamp"]
    assert devices(apiserver, name) == ["d0"]


def test_a_finished_pod_releases_and_deletes_its_claim(apiserver, cluster):
    apiserver.create("pods", pod(claims=[FROM_TEMPLATE]))
    cluster()
    finish(apiserver, "train")
    cluster()
    assert apiserver.all("resourceclaims") == []


def test_a_pod_that_is_being_deleted_gets_no_claim(apiserver, cluster):
    kept = pod(claims=[FROM_TEMPLATE])
    kept["metadata"]["finalizers"] = ["example.com/wait"]
    apiserver.create("pods", kept)
    apiserver.delete("pods", "train")
    assert apiserver.get("pods", "train")["metadata"]["deletionTimestamp"]
    cluster()
    assert apiserver.all("resourceclaims") == []


def test_the_claim_controller_runs_while_the_scheduler_allocates(apiserver, cluster, monkeypatch):
    """The scheduler first writes the finalizer. The controller must not remove it for good."""
    change = apiserver.change

    def interrupted(plural, name, change_, namespace="default", *, subresource=""):
        if subresource and plural == "resourceclaims":
            ClaimController().reconcile(apiserver)
        return change(plural, name, change_, namespace, subresource=subresource)

    apiserver.create("pods", pod(claims=[FROM_TEMPLATE]))
    ClaimController().reconcile(apiserver)
    monkeypatch.setattr(apiserver, "change", interrupted)
    schedule(apiserver)
    monkeypatch.undo()
    (made,) = apiserver.all("resourceclaims")
    assert made["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert made["status"]["allocation"]
    finish(apiserver, "train")
    cluster()
    assert apiserver.all("resourceclaims") == []


def test_a_deleted_pod_releases_its_claim(apiserver, cluster):
    apiserver.create("pods", pod(claims=[FROM_TEMPLATE]))
    cluster()
    apiserver.delete("pods", "train", gracePeriodSeconds=0)
    cluster()
    assert apiserver.all("resourceclaims") == []


def test_a_claim_of_a_user_is_shared_and_loses_its_devices_after_the_last_pod(apiserver, cluster):
    apiserver.create("resourceclaims", claim(name="shared"))
    entry = {"name": "devices", "resourceClaimName": "shared"}
    for name in ("one", "two"):
        apiserver.create("pods", pod(name, claims=[entry]))
    cluster()
    found = apiserver.get("resourceclaims", "shared")
    assert [each["name"] for each in found["status"]["reservedFor"]] == ["one", "two"]
    finish(apiserver, "one")
    cluster()
    found = apiserver.get("resourceclaims", "shared")
    assert [each["name"] for each in found["status"]["reservedFor"]] == ["two"]
    assert devices(apiserver, "shared") == ["d0"]
    finish(apiserver, "two")
    cluster()
    found = apiserver.get("resourceclaims", "shared")
    assert not (found.get("status") or {}).get("allocation")
    assert not found["metadata"].get("finalizers")


def test_devices_of_other_claims_are_not_allocated_again(apiserver, cluster):
    for name in ("one", "two", "three"):
        apiserver.create("pods", pod(name, claims=[FROM_TEMPLATE]))
    cluster()
    bound = [each["spec"].get("nodeName") for each in apiserver.all("pods")]
    assert bound.count("worker") == 2
    (waiting,) = [each for each in apiserver.all("pods") if not each["spec"].get("nodeName")]
    (condition,) = waiting["status"]["conditions"]
    assert condition["message"] == "0/1 nodes are available; cannot allocate all claims"
    (running, _) = [each for each in apiserver.all("pods") if each["spec"].get("nodeName")]
    finish(apiserver, running["metadata"]["name"])
    cluster()
    assert apiserver.get("pods", waiting["metadata"]["name"])["spec"]["nodeName"] == "worker"


def test_a_pod_goes_to_the_node_that_has_the_devices(apiserver, cluster):
    node(apiserver, "other")
    elsewhere = slice_("x0", name="t", pool="other", nodeName="other")
    apiserver.create("resourceslices", elsewhere)
    apiserver.create("resourceclaims", claim(exactly(count=2), name="two"))
    apiserver.create("pods", pod(claims=[{"name": "devices", "resourceClaimName": "two"}]))
    cluster()
    assert apiserver.get("pods", "train")["spec"]["nodeName"] == "worker"


def test_an_error_in_a_claim_is_the_reason_of_the_pod(apiserver, cluster):
    wanted = claim(exactly(deviceClassName="nope"), name="broken")
    apiserver.create("resourceclaims", wanted)
    apiserver.create("pods", pod(claims=[{"name": "devices", "resourceClaimName": "broken"}]))
    cluster()
    (condition,) = apiserver.get("pods", "train")["status"]["conditions"]
    assert "could not retrieve device class nope" in condition["message"]


def test_a_claim_that_the_caller_handed_in_is_left_alone(apiserver, cluster):
    apiserver.create("resourceclaims", claim(name="mine"))

    def handed_in(value):
        value["status"] = {
            "allocation": {"devices": {}},
            "reservedFor": [{"resource": "pods", "name": "elsewhere", "uid": "u"}],
        }
        return value

    before = apiserver.change("resourceclaims", "mine", handed_in, subresource="status")
    cluster()
    assert apiserver.get("resourceclaims", "mine") == before
    ClaimController(is_strict=True).reconcile(apiserver)
    assert not apiserver.get("resourceclaims", "mine")["status"].get("reservedFor")


def test_a_pod_waits_for_the_binding_conditions_of_its_devices(apiserver, cluster):
    waiting = device("n0", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    apiserver.create("resourceslices", slice_(waiting, name="b", pool="b"))
    apiserver.create("resourceclaims", claim(exactly(count=3), name="three"))
    apiserver.create("pods", pod(claims=[{"name": "devices", "resourceClaimName": "three"}]))
    cluster()
    assert devices(apiserver, "three") == ["d0", "d1", "n0"]
    assert "nodeName" not in apiserver.get("pods", "train")["spec"]

    meet(apiserver, "three", "ready")
    cluster()
    assert apiserver.get("pods", "train")["spec"]["nodeName"] == "worker"


def meet(apiserver, name, condition):
    """Set a condition of the device n0 of a claim, as its controller does."""
    facts = {"reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    key = {"driver": "gpu.example.com", "pool": "b", "device": "n0"}

    def changed(value):
        conditions = [{"type": condition, "status": "True", **facts}]
        value["status"]["devices"] = [{**key, "conditions": conditions}]
        return value

    apiserver.change("resourceclaims", name, changed, subresource="status")


def test_a_failed_binding_releases_the_devices_of_the_claim(apiserver, cluster):
    waiting = device("n0", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    apiserver.create("resourceslices", slice_(waiting, name="b", pool="b"))
    apiserver.create("resourceclaims", claim(exactly(count=3), name="three"))
    apiserver.create("pods", pod(claims=[{"name": "devices", "resourceClaimName": "three"}]))
    cluster()
    meet(apiserver, "three", "failed")
    apiserver.delete("resourceslices", "b")
    cluster()
    assert "allocation" not in (apiserver.get("resourceclaims", "three").get("status") or {})
    apiserver.create("resourceslices", slice_("n1", name="c", pool="c"))
    cluster()
    assert devices(apiserver, "three") == ["n1", "d0", "d1"]
    assert apiserver.get("pods", "train")["spec"]["nodeName"] == "worker"


def test_an_extended_resource_gets_a_claim_if_no_plugin_serves_it(apiserver, cluster):
    apiserver.create("pods", pod(limits={"vendor.com/gpu": "2"}))
    cluster()
    bound = apiserver.get("pods", "train")
    assert bound["spec"]["nodeName"] == "worker"
    status = bound["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {
            "containerName": "main",
            "resourceName": "vendor.com/gpu",
            "requestName": "container-0-request-0",
        }
    ]
    name = status["resourceClaimName"]
    assert name.startswith("train-extended-resources-")
    assert devices(apiserver, name) == ["d0", "d1"]
    finish(apiserver, "train")
    cluster()
    assert apiserver.all("resourceclaims") == []


def test_a_plugin_serves_an_extended_resource_while_it_has_devices(apiserver, cluster):
    def allocatable(amount):
        def changed(value):
            value["status"]["allocatable"]["vendor.com/gpu"] = amount
            return value

        apiserver.change("nodes", "worker", changed, subresource="status")

    allocatable("2")
    for name in ("one", "two"):
        apiserver.create("pods", pod(name, limits={"vendor.com/gpu": "2"}))
    cluster()
    assert apiserver.all("resourceclaims") == []
    bound = [
        each["metadata"]["name"] for each in apiserver.all("pods") if "nodeName" in each["spec"]
    ]
    assert len(bound) == 1
    # The plugin is gone: DRA serves the pod that waits.
    allocatable("0")
    cluster()
    assert all("nodeName" in each["spec"] for each in apiserver.all("pods"))
    assert len(apiserver.all("resourceclaims")) == 1
