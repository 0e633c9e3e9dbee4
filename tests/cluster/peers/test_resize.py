"""Changes of running pods, on the fake and on a real control plane."""

import pytest

from devicemanager.client.api import pod_path
from devicemanager.client.errors import ApiError
from devicemanager.cluster.options import NodeOptions
from devicemanager.core.quantity import Quantity

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def node(cluster, peer):
    """A node with 4 CPUs."""
    options = NodeOptions(
        labels={"group": peer.name},
        status_interval=0.5,
        amounts={
            "cpu": Quantity.parse("4"),
            "memory": Quantity.parse("8Gi"),
            "pods": Quantity.parse("110"),
            "ephemeral-storage": Quantity.parse("1Ti"),
        },
    )
    (found,) = cluster.join_in_memory(peer.name, 1, {}, options=options)
    peer.ready(found.name)
    return found


def run(peer, name, cpu, **container):
    resources = {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}
    main = {"name": "main", "image": "example.com/main", "resources": resources, **container}
    made = peer.pod(name, 0, containers=[main])
    if "generation" not in made["metadata"]:
        peer.delete(name)
        pytest.skip("the API server is older than 1.33")
    peer.phase(name, "Running")
    peer.wait(lambda: main_status(peer, name).get("resources"))


def resize(peer, name, **requests):
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    peer.request("PATCH", pod_path(peer.name, name, "resize"), body, patch="strategic")


def main_status(peer, name):
    (status,) = peer.get(name)["status"]["containerStatuses"]
    return status


def cpu(peer, name):
    return main_status(peer, name)["resources"]["requests"]["cpu"]


def pending(peer, name):
    conditions = {each["type"]: each for each in peer.get(name)["status"]["conditions"]}
    return conditions.get("PodResizePending")


def test_resize_fits_waits_and_is_done(node, peer):
    run(peer, "a", "1")
    run(peer, "b", "1")
    resize(peer, "a", cpu="2")
    peer.wait(lambda: cpu(peer, "a") == "2")
    assert pending(peer, "a") is None and main_status(peer, "a")["restartCount"] == 0
    resize(peer, "b", cpu="3")
    condition = peer.wait(lambda: pending(peer, "b"))
    assert condition["reason"] == "Deferred" and condition["message"] == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    assert cpu(peer, "b") == "1"
    peer.delete("a")
    peer.wait(lambda: cpu(peer, "b") == "3")
    assert pending(peer, "b") is None
    found = peer.get("b")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    with pytest.raises(ApiError, match="node didn't have enough allocatable resources: cpu"):
        resize(peer, "b", cpu="5")


def test_resize_policy_restarts_the_container(node, peer):
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    run(peer, "a", "1", resizePolicy=policy)
    resize(peer, "a", cpu="2")
    peer.wait(lambda: cpu(peer, "a") == "2")
    peer.wait(lambda: main_status(peer, "a")["restartCount"] == 1)


def test_ephemeral_container_runs(node, peer):
    run(peer, "a", "1")
    added = [{"name": "shell", "image": "example.com/shell", "targetContainerName": "main"}]
    path = pod_path(peer.name, "a", "ephemeralcontainers")
    peer.request("PATCH", path, {"spec": {"ephemeralContainers": added}}, patch="strategic")
    peer.wait(lambda: peer.get("a")["status"].get("ephemeralContainerStatuses"))
    (status,) = peer.get("a")["status"]["ephemeralContainerStatuses"]
    assert status["name"] == "shell" and status["state"]["running"]["startedAt"]
    assert peer.get("a")["status"]["phase"] == "Running"


def test_node_declares_its_features(node, peer):
    def declared():
        return peer.request("GET", f"/api/v1/nodes/{node.name}")["status"].get("declaredFeatures")

    if peer.kind == "real" and peer.minor < 36:
        pytest.skip("the API server is older than 1.36")
    assert declared() == [
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]


def test_rule_restarts_all_containers(node, peer):
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    main = {
        "name": "main",
        "image": "example.com/main",
        "restartPolicy": "Never",
        "restartPolicyRules": [rule],
    }
    side = {"name": "side", "image": "example.com/side"}
    setup = {"name": "setup", "image": "example.com/setup"}
    if peer.minor < 36:
        pytest.skip("the API server is older than 1.36")
    made = peer.pod("a", 0, containers=[main, side], initContainers=[setup], restartPolicy="Never")
    if "restartPolicyRules" not in made["spec"]["containers"][0]:
        peer.delete("a")
        pytest.skip("the API server is older than 1.34")
    uid = peer.phase("a", "Running")["metadata"]["uid"]
    node.exit(uid, "main", 42)

    def restarted():
        status = peer.get("a")["status"]
        found = [*status["initContainerStatuses"], *status["containerStatuses"]]
        return found if all(each["restartCount"] == 1 for each in found) else None

    for each in peer.wait(restarted):
        assert each["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
    found = peer.get("a")["status"]
    assert found["phase"] == "Running"
    assert "AllContainersRestarting" in [each["type"] for each in found["conditions"]]
    node.exit(uid, "main", 1)
    node.exit(uid, "side", 0)
    peer.phase("a", "Failed")
