"""Claims on virtual nodes, allocated by the scheduler of a fake or a real control plane."""

import pytest

from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.options import NodeOptions

pytestmark = pytest.mark.timeout(900)

RESOURCES = "/apis/resource.k8s.io/v1"
EXTENDED = "example.com/dra-gpu"


def join(cluster, peer, count=2, devices=2):
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


def claimed(peer, name):
    """Create a pod with a claim from the template."""
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"claims": [{"name": "gpu"}]},
    }
    entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    peer.pod(name, 0, containers=[container], resourceClaims=[entry])


def claims(peer):
    path = f"{RESOURCES}/namespaces/{peer.name}/resourceclaims"
    return peer.request("GET", path)["items"]


def results(peer):
    return sorted(
        (each["pool"], each["device"])
        for claim in claims(peer)
        for each in claim["status"].get("allocation", {"devices": {}})["devices"].get("results", ())
    )


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
