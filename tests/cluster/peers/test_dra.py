"""Claims on virtual nodes, allocated by the scheduler of a fake or a real control plane."""

import pytest

from devicemanager.cluster import Cluster
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.options import NodeOptions

pytestmark = pytest.mark.timeout(900)

RESOURCES = "/apis/resource.k8s.io/v1"
EXTENDED = "example.com/dra-gpu"


def join(cluster, peer, count=2, devices=2):
    if peer.minor < 34:
        pytest.skip("the API server is older than 1.34")
    # The driver has the name of the test's namespace, so that other tests use other devices.
    driver = f"{peer.name}.example.com"
    options = NodeOptions(
        labels={"group": peer.name},
        status_interval=0.5,
        drivers=(simulated_driver(driver, [0] * devices),),
        device_status=True,
    )
    nodes = cluster.join_in_memory(peer.name, count, {}, options=options)
    peer.ready(*(node.name for node in nodes))
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    class_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": peer.name},
        "spec": {"selectors": [selector], "extendedResourceName": EXTENDED},
    }
    peer.request("POST", f"{RESOURCES}/deviceclasses", class_)
    request = {"name": "gpu", "exactly": {"deviceClassName": peer.name}}
    template = {
        "plural": "resourceclaimtemplates",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    peer.create(RESOURCES, template)
    return nodes


def claimed(peer, name, **spec):
    """Create a pod with a claim from the template."""
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"claims": [{"name": "gpu"}]},
    }
    entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    peer.pod(name, 0, **{"containers": [container], "resourceClaims": [entry], **spec})


def claims(peer):
    path = f"{RESOURCES}/namespaces/{peer.name}/resourceclaims"
    return peer.request("GET", path)["items"]


def results(peer):
    return sorted(
        (each["pool"], each["device"])
        for claim in claims(peer)
        for each in claim["status"].get("allocation", {"devices": {}})["devices"].get("results", ())
    )


def event(peer, reason):
    """Wait for an event, and return its message."""
    path = f"/api/v1/namespaces/{peer.name}/events"

    def found():
        return [each for each in peer.request("GET", path)["items"] if each["reason"] == reason]

    return peer.wait(found)[0]["message"]


def test_pods_get_all_devices_and_free_them(cluster, peer):
    nodes = join(cluster, peer)
    for name in "abcde":
        claimed(peer, name)
    running = peer.wait(
        lambda: sum(each["status"]["phase"] == "Running" for each in peer.pods()) == 4
    )
    assert running
    assert len(set(results(peer))) == 4
    (waiting,) = (each for each in peer.pods() if each["status"]["phase"] == "Pending")
    first = next(each for each in peer.pods() if each["status"]["phase"] == "Running")
    name = first["metadata"]["name"]
    (resource,) = first["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    assert resource["name"] == "claim:gpu"
    device = peer.wait(lambda: [c for c in claims(peer) if c["status"].get("devices")])
    assert device[0]["status"]["devices"][0]["conditions"][0]["status"] == "True"
    peer.delete(name)
    peer.gone(name)
    peer.phase(waiting["metadata"]["name"], "Running")
    for each in peer.pods():
        peer.delete(each["metadata"]["name"])
    peer.wait(lambda: not peer.pods() and not claims(peer))
    assert not [claim for node in nodes for claim in held(node)]


def held(node):
    """Return the claims that a node's kubelet holds."""
    dra = node.kubelet._life.serving().dra.if_used
    return () if dra is None else dra.claims


def test_extended_resource_is_served_by_dra(cluster, peer):
    (node,) = join(cluster, peer, 1)
    if peer.minor < 36:
        pytest.skip("the API server is older than 1.36")
    limits = {"limits": {EXTENDED: "1"}}
    container = {"name": "main", "image": "example.com/main", "resources": limits}
    peer.pod("a", 0, containers=[container])
    status = peer.phase("a", "Running")["status"]
    assert status["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == EXTENDED
    assert len(held(node)) == 1
    peer.delete("a")
    peer.gone("a")
    peer.wait(lambda: not held(node))


def test_slices_leave_with_their_node(cluster, peer):
    (node,) = join(cluster, peer, 1)
    query = {"fieldSelector": f"spec.nodeName={node.name}"}

    def slices():
        return peer.request("GET", f"{RESOURCES}/resourceslices", query=query)["items"]

    peer.wait(slices)
    cluster.leave([node.name])
    peer.wait(lambda: not slices())


def slice_of(peer, node):
    """Return the slice of a node, or None."""
    query = {"fieldSelector": f"spec.nodeName={node.name}"}
    found = peer.request("GET", f"{RESOURCES}/resourceslices", query=query)["items"]
    return found[0] if found else None


def test_pod_whose_claim_is_missing_stays_pending(cluster, peer):
    (node,) = join(cluster, peer, 1)
    entry = {"name": "gpu", "resourceClaimName": "missing"}
    claimed(peer, "a", nodeName=node.name, resourceClaims=[entry])
    assert event(peer, "FailedPrepareDynamicResources") == (
        "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim "
        'missing: resourceclaims.resource.k8s.io "missing" not found'
    )
    assert peer.get("a")["status"]["phase"] == "Pending"


def test_pod_whose_claim_cannot_be_prepared_stays_pending(cluster, peer):
    (node,) = join(cluster, peer, 1)
    faults = {"devicemanager.io/faults": f"prepare-fails={peer.name}.example.com:1"}
    path = f"/api/v1/nodes/{node.name}"
    peer.request("PATCH", path, {"metadata": {"annotations": faults}}, patch="merge")
    peer.wait(lambda: node.faults.active)
    claimed(peer, "a")
    assert "NodePrepareResources" in event(peer, "FailedPrepareDynamicResources")
    assert peer.get("a")["status"]["phase"] == "Pending"
    peer.delete("a")
    peer.gone("a")
    claimed(peer, "b")
    peer.phase("b", "Running")


def test_restarted_kubelet_wipes_its_slices(cluster, peer):
    (node,) = join(cluster, peer, 1)
    before = peer.wait(lambda: slice_of(peer, node))
    owner = before["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Node", node.name)
    node.restart()

    def is_new():
        found = slice_of(peer, node)
        return found and found["metadata"]["uid"] != before["metadata"]["uid"]

    peer.wait(is_new)


def test_unhealthy_device_shows_in_pod_and_slice(cluster, peer):
    (node,) = join(cluster, peer, 1, 1)
    claimed(peer, "a")
    peer.phase("a", "Running")
    device = slice_of(peer, node)["spec"]["devices"][0]["name"]
    node.fail_device(f"{peer.name}.example.com", device)
    (taint,) = peer.wait(lambda: slice_of(peer, node)["spec"]["devices"][0].get("taints"))
    assert (taint["key"], taint["effect"]) == (f"{peer.name}.example.com/unhealthy", "NoSchedule")

    def health():
        (resource,) = peer.get("a")["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
        return resource["resources"][0]["health"]

    peer.wait(lambda: health() == "Unhealthy")


def test_another_process_takes_the_claims_over(cluster, peer):
    (node,) = join(cluster, peer, 1)
    claimed(peer, "a")
    peer.phase("a", "Running")
    cluster.leave([node.name], "keep")
    with Cluster.connect(peer.kubeconfig) as second:
        (taken_over,) = second.join_in_memory(peer.name, 1, {}, options=node.options)
        peer.wait(lambda: held(taken_over))
        assert peer.get("a")["status"]["phase"] == "Running"
        peer.delete("a")
        peer.gone("a")
        peer.wait(lambda: not claims(peer) and not held(taken_over))
