"""Nodes and pods from beginning to end, on the fake and on a real control plane."""

import pytest

from devicemanager.client.api import node_path, pod_path
from devicemanager.client.errors import ApiError, ClusterError, Forbidden, NotFound
from devicemanager.cluster import Cluster
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.durations import Range
from devicemanager.cluster.options import NodeOptions
from devicemanager.kubelet.settings import Settings

GPU = "vendor.com/gpu"
RESULT = ["Failed", "Running"]

pytestmark = pytest.mark.timeout(900)


def options(peer):
    # A kubelet checks its status every 10 s; tests do not wait so long.
    return NodeOptions(labels={"group": peer.name}, status_interval=0.5)


def join(cluster, peer, count=1, gpus=2, **more):
    nodes = cluster.join_in_memory(peer.name, count, {GPU: gpus}, options=options(peer), **more)
    peer.ready(*(node.name for node in nodes))
    return nodes


def allocated(node):
    """Return the IDs of allocated devices."""
    node.kubelet.self_check()
    return {each.id for each in node.kubelet.inventory() if each.pod is not None}


def condition(pod, kind):
    return {each["type"]: each for each in pod["status"]["conditions"]}[kind]


def test_pods_run_wait_and_are_deleted(cluster, peer):
    (node,) = join(cluster, peer)
    for name in "abc":
        peer.pod(name)
    peer.wait(lambda: sum(each["status"]["phase"] == "Running" for each in peer.pods()) == 2)
    assert len(allocated(node)) == 2
    (waiting,) = (each for each in peer.pods() if each["status"]["phase"] == "Pending")
    running = next(each for each in peer.pods() if each["status"]["phase"] == "Running")
    assert condition(running, "Ready")["status"] == "True"
    (container,) = running["status"]["containerStatuses"]
    assert container["ready"] and container["state"]["running"]["startedAt"]
    info = peer.request("GET", node_path(node.name))["status"]["nodeInfo"]
    runtime = info["containerRuntimeVersion"].partition("://")[0]
    assert container["containerID"].partition("://")[0] == runtime == "containerd"
    assert container["imageID"].startswith("sha256:")
    (resource,) = container["allocatedResourcesStatus"]
    assert resource["name"] == GPU
    assert resource["resources"][0]["health"] == "Healthy"
    peer.delete(running["metadata"]["name"])
    peer.gone(running["metadata"]["name"])
    peer.phase(waiting["metadata"]["name"], "Running")
    assert len(allocated(node)) == 2


def test_pod_without_free_devices_is_rejected(cluster, peer):
    (node,) = join(cluster, peer)
    peer.pod("a", 2)
    peer.phase("a", "Running")
    peer.pod("b", 2, nodeName=node.name)
    rejected = peer.phase("b", "Failed")["status"]
    assert rejected["reason"] == "UnexpectedAdmissionError"
    assert rejected["message"] == (
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
        f"{GPU}. Requested: 2, Available: 0, which is unexpected"
    )
    assert not rejected.get("containerStatuses")
    events = peer.wait(
        lambda: [
            each
            for each in peer.request("GET", f"/api/v1/namespaces/{peer.name}/events")["items"]
            if each["reason"] == "UnexpectedAdmissionError"
        ]
    )
    assert not events[0]["message"].startswith("Pod was rejected")
    assert events[0]["source"] == {"component": "kubelet", "host": node.name}


def test_pod_that_cannot_be_aligned_is_rejected(cluster, peer):
    settings = Settings(topology_policy="single-numa-node")
    (node,) = join(cluster, peer, gpus="2@0,2@1", settings=settings)
    peer.pod("a", 3, nodeName=node.name)
    rejected = peer.phase("a", "Failed")["status"]
    assert rejected["reason"] == "TopologyAffinityError"
    assert rejected["message"] == (
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    )
    assert not allocated(node)


def test_pod_with_an_invalid_quantity_is_refused(peer):
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "much"}}}
    text = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular'
    with pytest.raises(ApiError, match=text):
        peer.pod("a", containers=[container])


def test_deleted_pod_frees_its_devices(cluster, peer):
    (node,) = join(cluster, peer)
    peer.pod("a", 2)
    peer.phase("a", "Running")
    peer.delete("a")
    peer.gone("a")
    peer.wait(lambda: not allocated(node))


def test_evicted_pod_is_removed(cluster, peer):
    (node,) = join(cluster, peer)
    peer.pod("a")
    peer.phase("a", "Running")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    peer.request("POST", pod_path(peer.name, "a", "eviction"), eviction)
    peer.gone("a")
    peer.wait(lambda: not allocated(node))


def job(peer, completions, parallelism):
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"limits": {GPU: "1"}},
    }
    template = {
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"group": peer.name},
            "terminationGracePeriodSeconds": 1,
        }
    }
    spec = {"completions": completions, "parallelism": parallelism, "template": template}
    peer.create("/apis/batch/v1", {"plural": "jobs", "metadata": {"name": "j"}, "spec": spec})


def job_status(peer):
    found = peer.request("GET", f"/apis/batch/v1/namespaces/{peer.name}/jobs/j")
    return found.get("status", {})


def test_job_completes(cluster, peer):
    (node,) = join(cluster, peer, behaviour=ContainerBehaviour(job_duration=Range(0.1)))
    job(peer, 5, 3)
    peer.wait(lambda: job_status(peer).get("succeeded") == 5)
    assert not job_status(peer).get("failed")
    peer.wait(lambda: not allocated(node))


def test_deleted_pod_of_a_job_does_not_complete_it(cluster, peer):
    join(cluster, peer, behaviour=ContainerBehaviour(job_duration=Range(600)))
    job(peer, 1, 1)
    (first,) = peer.wait(
        lambda: [each for each in peer.pods() if each["status"]["phase"] == "Running"]
    )
    peer.delete(first["metadata"]["name"])
    peer.wait(lambda: job_status(peer).get("failed") == 1)
    assert not job_status(peer).get("succeeded")


def test_failed_device_shows_in_pod_and_node(cluster, peer):
    (node,) = join(cluster, peer)
    peer.pod("a", 2)
    peer.phase("a", "Running")
    node.kubelet.fail_device(GPU, next(iter(allocated(node))))

    def unhealthy():
        (container,) = peer.get("a")["status"]["containerStatuses"]
        (resource,) = container["allocatedResourcesStatus"]
        return sorted(each["health"] for each in resource["resources"]) == ["Healthy", "Unhealthy"]

    peer.wait(unhealthy)

    def fewer():
        status = peer.request("GET", node_path(node.name))["status"]
        return status["allocatable"][GPU] == "1" and status["capacity"][GPU] == "2"

    peer.wait(fewer)


def test_strict_nodes_read_only_their_own_objects(peer):
    with Cluster.connect(peer.kubeconfig, as_nodes="strict") as cluster:
        first, second = join(cluster, peer, 2)
        for name in ("a", "b"):
            peer.pod(name, 2, nodeName=first.name)
        peer.wait(lambda: sorted(each["status"]["phase"] for each in peer.pods()) == RESULT)
        query = {"fieldSelector": f"spec.nodeName={first.name}"}
        own = peer.request("GET", "/api/v1/pods", query=query, user=first.name)["items"]
        assert sorted(each["metadata"]["name"] for each in own) == ["a", "b"]
        for path, more in (
            ("/api/v1/pods", {}),
            ("/api/v1/pods", query),
            ("/api/v1/nodes", {}),
            (node_path(first.name), {}),
        ):
            with pytest.raises(Forbidden):
                peer.request("GET", path, query=more, user=second.name)
        cluster.leave([first.name], "keep")
        (first,) = join(cluster, peer)  # its own LIST has the pods
        peer.wait(lambda: len(allocated(first)) == 2)
        note = {"metadata": {"annotations": {"devicemanager.io/faults": "not-ready=the fan"}}}
        peer.request("PATCH", node_path(second.name), note, patch="merge")
        peer.wait(lambda: second.conditions()[-1].message == "the fan")
        for name in ("a", "b"):
            peer.delete(name)
            peer.gone(name)
        peer.wait(lambda: not allocated(first))
        peer.request("DELETE", node_path(second.name))
        peer.wait(lambda: second.name not in cluster.nodes)
    with pytest.raises(NotFound):
        peer.request("GET", node_path(first.name))


def test_another_process_takes_the_pods_over(cluster, peer):
    (node,) = join(cluster, peer)
    peer.pod("a", 2)
    before = peer.phase("a", "Running")
    cluster.leave([node.name], "keep")
    with Cluster.connect(peer.kubeconfig) as second:
        (taken_over,) = join(second, peer)
        peer.wait(lambda: len(allocated(taken_over)) == 2)
        after = peer.get("a")
        assert after["status"]["phase"] == "Running"
        assert after["status"]["startTime"] == before["status"]["startTime"]
        assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
        peer.delete("a")
        peer.gone("a")
        peer.wait(lambda: not allocated(taken_over))


def test_deleted_node_leaves(cluster, peer):
    (node,) = join(cluster, peer)
    peer.request("DELETE", node_path(node.name))
    peer.wait(lambda: node.name not in cluster.nodes)


def test_join_rejects_existing_foreign_node(cluster, peer):
    name = f"{peer.name}-0"
    peer.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    with pytest.raises(
        ClusterError, match=r"^these names belong to Nodes that devicemanager did not create"
    ):
        cluster.join_in_memory(peer.name)
    assert not cluster.nodes
    peer.request("DELETE", node_path(name))


def test_close_deletes_the_nodes(peer):
    with Cluster.connect(peer.kubeconfig) as cluster:
        join(cluster, peer, 3)
    for index in range(3):
        with pytest.raises(NotFound):
            peer.request("GET", node_path(f"{peer.name}-{index}"))
