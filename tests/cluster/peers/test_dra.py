"""Claims on virtual nodes, allocated by the scheduler of a fake or a real control plane."""

import json
import subprocess

import pytest

from devicemanager.cli.join_slices import recorded_layouts
from devicemanager.client.api import pod_path
from devicemanager.client.errors import Forbidden
from devicemanager.cluster import Cluster
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.options import NodeOptions
from tests.cluster.peers.processes import COMMAND

pytestmark = pytest.mark.timeout(900)

RESOURCES = "/apis/resource.k8s.io/v1"
EXTENDED = "example.com/dra-gpu"
PREPARE = "FailedPrepareDynamicResources"


def driver_of(peer):
    """Return the driver of a test. It has the name of the test's namespace, so that other tests use
    other devices."""
    return f"{peer.name}.example.com"


def join(cluster, peer, count=2, devices=2, drivers=None):
    create_class(peer)
    drivers = drivers or (simulated_driver(driver_of(peer), [0] * devices),)
    options = NodeOptions(
        labels={"group": peer.name}, status_interval=0.5, drivers=drivers, device_status=True
    )
    nodes = cluster.join_in_memory(peer.name, count, {}, options=options)
    peer.ready(*(node.name for node in nodes))
    return nodes


def create_class(peer):
    """Create a DeviceClass and a template of claims for the devices of the test's driver."""
    if peer.minor < 34:
        pytest.skip("resource.k8s.io/v1 exists since 1.34")
    selector = {"cel": {"expression": f"device.driver == '{driver_of(peer)}'"}}
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


def messages(peer, reason):
    """Return the messages of events."""
    found = peer.request("GET", f"/api/v1/namespaces/{peer.name}/events")["items"]
    return [each["message"] for each in found if each["reason"] == reason]


def event(peer, reason):
    """Wait for an event, and return its message."""
    return peer.wait(lambda: messages(peer, reason))[0]


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


def test_strict_nodes_publish_and_prepare_as_themselves(peer):
    """The Node authorizer and NodeRestriction apply to slices and claims, too."""
    warnings = []
    with Cluster.connect(peer.kubeconfig, as_nodes="strict", warn=warnings.append) as cluster:
        first, second = join(cluster, peer, 2, 1)
        before = peer.wait(lambda: slice_of(peer, first))
        for name in "ab":
            claimed(peer, name)
        for name in "ab":
            peer.phase(name, "Running")
        peer.delete("a")
        peer.gone("a")
        first.restart()
        peer.wait(lambda: is_new(peer, first, before))
        query = {"fieldSelector": f"spec.nodeName={first.name}"}
        with pytest.raises(Forbidden):
            peer.request("DELETE", f"{RESOURCES}/resourceslices", query=query, user=second.name)
    assert not [line for line in warnings if "forbidden" in line]


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
    assert event(peer, PREPARE) == (
        "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim "
        'missing: resourceclaims.resource.k8s.io "missing" not found'
    )
    assert peer.get("a")["status"]["phase"] == "Pending"


def test_pod_whose_claim_is_not_allocated_stays_pending(cluster, peer):
    (node,) = join(cluster, peer, 1)
    create_claim(peer, "idle")
    entry = {"name": "gpu", "resourceClaimName": "idle"}
    claimed(peer, "a", nodeName=node.name, resourceClaims=[entry])
    assert "is not allowed to use ResourceClaim idle" in event(peer, PREPARE)
    assert peer.get("a")["status"]["phase"] == "Pending"


def create_claim(peer, name):
    request = {"name": "gpu", "exactly": {"deviceClassName": peer.name}}
    spec = {"devices": {"requests": [request]}}
    peer.create(RESOURCES, {"plural": "resourceclaims", "metadata": {"name": name}, "spec": spec})


def test_shared_claim_is_unprepared_with_its_last_pod(cluster, peer):
    (node,) = join(cluster, peer, 1)
    create_claim(peer, "shared")
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    for name in "ab":
        claimed(peer, name, resourceClaims=[entry])
        peer.phase(name, "Running")
    peer.delete("a")
    peer.gone("a")
    (claim,) = held(node)
    assert claim.prepared
    peer.delete("b")
    peer.gone("b")
    assert not held(node)


def test_claim_with_the_name_of_an_earlier_one_waits_for_its_end(cluster, peer):
    (node,) = join(cluster, peer, 1)
    create_claim(peer, "x")
    entry = {"name": "gpu", "resourceClaimName": "x"}
    claimed(peer, "a", resourceClaims=[entry])
    peer.phase("a", "Running")
    (old,) = claims(peer)
    path = f"{RESOURCES}/namespaces/{peer.name}/resourceclaims/x"
    peer.request("DELETE", path)
    # Without the finalizer, the claim is deleted although a pod uses it.
    peer.request("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge")
    create_claim(peer, "x")
    claimed(peer, "b", resourceClaims=[entry])
    text = f"same name x and different UID {old['metadata']['uid']} still exists"
    assert text in event(peer, PREPARE)
    assert peer.get("b")["status"]["phase"] == "Pending"
    peer.delete("a")
    peer.gone("a")
    assert not [claim for claim in held(node) if claim.prepared]


def set_faults(peer, node, text):
    """Set the faults of a node by its annotation. None clears them."""
    body = {"metadata": {"annotations": {"devicemanager.io/faults": text}}}
    peer.request("PATCH", f"/api/v1/nodes/{node.name}", body, patch="merge")
    peer.wait(lambda: bool(node.faults.active) == bool(text))


def test_pod_whose_claim_cannot_be_prepared_stays_pending(cluster, peer):
    (node,) = join(cluster, peer, 1)
    set_faults(peer, node, f"prepare-fails={driver_of(peer)}:1")
    claimed(peer, "a")
    assert "NodePrepareResources" in event(peer, PREPARE)
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
    peer.wait(lambda: is_new(peer, node, before))


def is_new(peer, node, before):
    """True if a node has another slice than before."""
    found = slice_of(peer, node)
    return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]


def test_unhealthy_device_shows_in_pod_and_slice(cluster, peer):
    (node,) = join(cluster, peer, 1, 1)
    claimed(peer, "a")
    peer.phase("a", "Running")
    device = slice_of(peer, node)["spec"]["devices"][0]["name"]
    node.fail_device(driver_of(peer), device)
    (taint,) = peer.wait(lambda: slice_of(peer, node)["spec"]["devices"][0].get("taints"))
    assert (taint["key"], taint["effect"]) == (f"{driver_of(peer)}/unhealthy", "NoSchedule")

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


def test_claims_are_unprepared_before_the_last_status(peer):
    """While unprepare fails, the containers have stopped, but the pod stays Running."""
    warnings = []
    with Cluster.connect(peer.kubeconfig, warn=warnings.append) as cluster:
        (node,) = join(cluster, peer, 1)
        claimed(peer, "a")
        uid = peer.phase("a", "Running")["metadata"]["uid"]
        set_faults(peer, node, f"unprepare-fails={driver_of(peer)}")
        peer.delete("a")
        peer.wait(lambda: [line for line in warnings if "unprepare fails" in line])
        record = node.kubelet.pod_store.known(uid)
        assert not record.running
        assert held(node)
        found = peer.get("a")
        assert found["metadata"]["deletionTimestamp"]
        assert found["status"]["phase"] == "Running"
        (claim,) = claims(peer)
        assert claim["status"]["reservedFor"][0]["uid"] == uid
        set_faults(peer, node, None)
        peer.gone("a")
        assert not held(node)
        peer.wait(lambda: not claims(peer))


def test_delayed_prepare_starts_the_pod_later(cluster, peer):
    (node,) = join(cluster, peer, 1)
    set_faults(peer, node, f"prepare-delay={driver_of(peer)}:3s")
    claimed(peer, "a")
    status = peer.phase("a", "Running")["status"]
    (container,) = status["containerStatuses"]
    # The pod starts before its claim is prepared, and the container after that.
    assert container["state"]["running"]["startedAt"] > status["startTime"]


def test_device_that_is_allocated_twice_is_reported(cluster, peer):
    """The scheduler never does this, so the test writes the second allocation."""
    (node,) = join(cluster, peer, 1)
    claimed(peer, "a")
    peer.phase("a", "Running")
    (first,) = claims(peer)
    second = {
        "plural": "resourceclaims",
        "metadata": {"name": "second"},
        "spec": {"devices": {"requests": first["spec"]["devices"]["requests"]}},
    }
    made = peer.create(RESOURCES, second)
    made["status"] = {"allocation": first["status"]["allocation"]}
    entry = {"name": "gpu", "resourceClaimName": "second"}
    claimed(peer, "b", schedulerName="test", resourceClaims=[entry])
    consumer = {"resource": "pods", "name": "b", "uid": peer.get("b")["metadata"]["uid"]}
    made["status"]["reservedFor"] = [consumer]
    path = f"{RESOURCES}/namespaces/{peer.name}/resourceclaims/second/status"
    peer.request("PUT", path, made)
    binding = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": node.name}}
    peer.request("POST", pod_path(peer.name, "b", "binding"), binding)
    device = first["status"]["allocation"]["devices"]["results"][0]["device"]
    name = first["metadata"]["name"]
    text = (
        f"device {node.name}/{device} is allocated twice: ResourceClaim {peer.name}/{name} has it"
    )
    assert event(peer, PREPARE).endswith(text)
    assert peer.get("b")["status"]["phase"] == "Pending"
    assert peer.get("a")["status"]["phase"] == "Running"


PARTITIONS = [
    {
        "sharedCounters": [
            {"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}, "slots": {"value": "2"}}}
        ]
    },
    {
        "devices": [
            {
                "name": f"gpu-0-part-{index}",
                "attributes": {"profile": {"string": "half"}, "index": {"int": index}},
                "capacity": {"memory": {"value": "40Gi"}},
                "consumesCounters": [
                    {
                        "counterSet": "gpu-0",
                        "counters": {"memory": {"value": "40Gi"}, "slots": {"value": "1"}},
                    }
                ],
            }
            for index in range(3)
        ]
    },
]
SHARED = [
    {
        "devices": [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {
                            "default": "40Gi",
                            "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"},
                        },
                    }
                },
            }
        ]
    }
]


@pytest.mark.parametrize("layout", [PARTITIONS, SHARED], ids=["partitions", "shared"])
def test_recorded_slices_are_scheduled(cluster, peer, tmp_path, layout):
    """Two pods fit: two of three partitions have counters, and a pod gets half of a shared device.

    The third pod waits until one of them is deleted.
    """
    slices = [
        {
            "metadata": {"name": f"{index}-worker"},
            "spec": {
                "driver": driver_of(peer),
                "nodeName": "worker",
                "pool": {"name": "worker", "generation": 4, "resourceSliceCount": len(layout)},
                **part,
            },
        }
        for index, part in enumerate(layout)
    ]
    file = tmp_path / "slices.json"
    file.write_text(json.dumps(slices))
    (node,) = join(cluster, peer, 1, drivers=recorded_layouts(str(file)))
    query = {"fieldSelector": f"spec.nodeName={node.name}"}

    def published():
        found = peer.request("GET", f"{RESOURCES}/resourceslices", query=query)["items"]
        return sorted(found, key=lambda each: "devices" in each["spec"])

    peer.wait(lambda: len(published()) == len(layout))
    for found, part in zip(published(), layout, strict=True):
        assert {key: found["spec"][key] for key in part} == part
        assert found["spec"]["pool"]["name"] == node.name
    for name in "abc":
        claimed(peer, name)

    def in_phase(phase):
        return [
            each["metadata"]["name"] for each in peer.pods() if each["status"]["phase"] == phase
        ]

    peer.wait(lambda: len(in_phase("Running")) == 2)
    (waiting,) = in_phase("Pending")
    peer.delete(in_phase("Running")[0])
    peer.phase(waiting, "Running")


@pytest.fixture
def controlled(join_command, peer, tmp_path):
    """Start ``join --control`` with one node. Return a function that runs ``ctl nodes`` on it, and
    the file with the warnings of ``join``."""
    create_class(peer)
    words = ["--prefix", peer.name, "--label", f"group={peer.name}", "--root", tmp_path / "root"]
    words += ["--control", "--simulate-driver", f"{driver_of(peer)}=2"]

    def run(action, *words):
        run = [COMMAND, "ctl", "nodes", action, f"{peer.name}-0", driver_of(peer), *words]
        run += ["--control", tmp_path / "root"]
        return subprocess.run(list(map(str, run)), capture_output=True, text=True, check=False)

    def ctl(action, *words):
        done = run(action, *words)
        assert done.returncode == 0, done.stderr

    warnings = tmp_path / "warnings"
    with warnings.open("w") as file:
        join_command(*words, stdout=file, stderr=file)
        peer.ready(f"{peer.name}-0")
        # The Node is Ready a moment before the control API lists the node.
        peer.wait(lambda: run("fail-unprepare", "--off").returncode == 0)
        yield ctl, warnings


def test_control_api_sets_the_faults_of_drivers(controlled, peer):
    ctl, warnings = controlled
    ctl("fail-prepare", "--times", "1")
    claimed(peer, "a")
    assert "prepare fails" in event(peer, PREPARE)
    assert peer.get("a")["status"]["phase"] == "Pending"
    peer.delete("a")
    peer.gone("a")
    ctl("delay-prepare", "3")
    claimed(peer, "b")
    status = peer.phase("b", "Running")["status"]
    (container,) = status["containerStatuses"]
    assert container["state"]["running"]["startedAt"] > status["startTime"]
    ctl("fail-unprepare")
    peer.delete("b")
    peer.wait(lambda: "unprepare fails" in warnings.read_text())
    assert peer.get("b")["status"]["phase"] == "Running"
    ctl("fail-unprepare", "--off")
    peer.gone("b")
    peer.wait(lambda: not claims(peer))
