"""What a node must do as a kubelet does, on the fake and on a real control plane."""

import time
from functools import partial

import pytest

from devicemanager.client.api import node_path, pod_path
from devicemanager.client.errors import ClusterError, Forbidden, Invalid, NotFound
from devicemanager.client.lease_controller import HOLDER
from devicemanager.cluster import Cluster, NodeSpecs
from devicemanager.cluster.options import NodeOptions
from devicemanager.core.quantity import Quantity
from devicemanager.kubelet.settings import Settings
from devicemanager.objects.status.times import micro_timestamp

GPU = "vendor.com/gpu"

pytestmark = pytest.mark.timeout(900)


def join(cluster, peer, count=1, settings=None, **more):
    options = NodeOptions(labels={"group": peer.name}, status_interval=0.5, **more)
    nodes = cluster.join_in_memory(peer.name, count, {GPU: 2}, options=options, settings=settings)
    peer.ready(*(node.name for node in nodes))
    return nodes


def test_name_of_a_force_deleted_pod_returns_on_another_node(peer):
    """With --as-nodes, NodeRestriction denies the late status of the first pod.

    kube-apiserver marks the pod, then deletes it. If the first status arrives in between, it
    deletes the next pod with this name, too (Store.Update in registry/generic/registry/store.go).
    Then the test creates that pod again.
    """

    def is_running(node):
        try:
            return peer.get("a")["status"].get("phase") == "Running"
        except NotFound:
            peer.pod("a", nodeName=node)
            return False

    with Cluster.connect(peer.kubeconfig, as_nodes=True) as cluster:
        names = [node.name for node in join(cluster, peer, 2)]
        for turn in range(6):
            node = names[turn % 2]
            peer.pod("a", nodeName=node)
            if turn:
                peer.wait(partial(is_running, node), f"a on {node}")
            now = {"gracePeriodSeconds": 0}
            peer.request("DELETE", pod_path(peer.name, "a"), now)
        peer.pod("last", nodeName=names[0])
        peer.phase("last", "Running")
        assert sorted(cluster.nodes) == names
        peer.ready(*names)


def test_nodes_of_a_live_process_are_not_taken_over(cluster, peer):
    (node,) = join(cluster, peer)
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    peer.wait(lambda: peer.request("GET", path))
    # Now only the test renews the lease, so it decides who holds it, and until when.
    cluster.leave([node.name], "keep")

    def renewed(seconds_ago):
        spec = {"renewTime": micro_timestamp(time.time() - seconds_ago)}
        spec["leaseDurationSeconds"] = 1000
        change = {"metadata": {"annotations": {HOLDER: "elsewhere/7"}}, "spec": spec}
        peer.request("PATCH", path, change, patch="merge")

    with Cluster.connect(peer.kubeconfig) as second:
        renewed(0)
        with pytest.raises(ClusterError, match="process 7 on elsewhere runs the existing node"):
            join(second, peer)
        assert not second.nodes
        assert second.check([node.name], take_over=True).existing == {node.name}
        renewed(1001)
        (taken_over,) = join(second, peer)
        assert taken_over.uid == node.uid
        peer.pod("a")
        peer.phase("a", "Running")


def test_processes_share_the_shards(peer):
    def share(cluster, identity):
        options = NodeOptions(labels={"group": peer.name})
        specs = NodeSpecs.numbered(peer.name, 4, {GPU: 1}, options=options)
        cluster.join_shards(specs, 2, peer.name, identity)

    with Cluster.connect(peer.kubeconfig) as second:
        with Cluster.connect(peer.kubeconfig, leave="keep") as first:
            share(first, "first")
            peer.wait(lambda: len(first.nodes) == 4)
            share(second, "second")
            peer.wait(lambda: (len(first.nodes), len(second.nodes)) == (2, 2))
            assert not first.nodes.keys() & second.nodes.keys()
        peer.wait(lambda: len(second.nodes) == 4)
        peer.ready(*second.nodes)


def test_pods_that_do_not_fit_the_node_are_rejected(cluster, peer):
    sizes = {"cpu": "4", "memory": "8Gi", "pods": "3", "ephemeral-storage": "1Ti"}
    amounts = {name: Quantity.parse(amount) for name, amount in sizes.items()}
    (node,) = join(cluster, peer, amounts=amounts)

    def reason(name, requests=None, **spec):
        container = {"name": "main", "image": "i", "resources": {"requests": requests or {}}}
        peer.pod(name, 0, nodeName=node.name, containers=[container], **spec)
        status = peer.phase(name, "Running", "Failed")["status"]
        return status.get("reason", status["phase"])

    assert reason("cpu", {"cpu": "5"}) == "OutOfcpu"
    assert reason("memory", {"memory": "9Gi"}) == "OutOfmemory"
    assert reason("zone", nodeSelector={"zone": "none"}) == "NodeAffinity"
    assert reason("os", os={"name": "windows"}) == "PodOSNotSupported"
    assert [reason(name) for name in "abcd"] == ["Running"] * 3 + ["OutOfpods"]


def test_pods_of_all_nodes_have_different_addresses(cluster, peer):
    nodes = join(cluster, peer, 3)
    for index in range(9):
        peer.pod(f"p{index}", 0, nodeName=nodes[index % 3].name)
    for index in range(9):
        peer.phase(f"p{index}", "Running")
    assert len({each["status"]["podIP"] for each in peer.pods()}) == 9


def test_status_with_another_uid_is_refused(cluster, peer):
    """The server's answer when the name of a pod has returned: the write must not be repeated."""
    (node,) = join(cluster, peer)
    peer.pod("a", nodeName=node.name)
    peer.phase("a", "Running")
    body = {"metadata": {"uid": "other"}, "status": {"message": "late"}}
    with pytest.raises(Invalid, match=r"metadata\.uid: .*field is immutable"):
        peer.request("PATCH", pod_path(peer.name, "a", "status"), body, patch="strategic")
    assert "message" not in peer.get("a")["status"]


def test_node_can_write_only_its_own_pods(cluster, peer):
    """The difference that ``--as-nodes`` makes (NodeRestriction)."""
    first, second = join(cluster, peer, 2)
    peer.pod("a", nodeName=first.name)
    peer.phase("a", "Running")
    rule = f'node "{second.name}" can only {{}} pods with spec.nodeName set to itself'
    status = {"status": {"message": "late"}}
    path = pod_path(peer.name, "a", "status")
    with pytest.raises(Forbidden, match=rule.format("update pod status for")):
        peer.request("PATCH", path, status, patch="strategic", user=second.name)
    with pytest.raises(Forbidden, match=rule.format("delete")):
        peer.request("DELETE", pod_path(peer.name, "a"), {}, user=second.name)
    assert "message" not in peer.get("a")["status"]


def test_node_reports_the_selected_version(cluster, peer):
    (node,) = join(cluster, peer, settings=Settings(kubelet_version="1.33"))
    info = peer.request("GET", node_path(node.name))["status"]["nodeInfo"]
    assert info["kubeletVersion"].startswith("v1.33.")


def test_capacity_that_another_client_changes_is_restored(cluster, peer):
    (node,) = join(cluster, peer)
    path = f"{node_path(node.name)}/status"
    peer.request("PATCH", path, {"status": {"capacity": {GPU: "9"}}}, patch="strategic")
    peer.wait(lambda: peer.request("GET", path)["status"]["capacity"][GPU] == "2")


def test_failing_init_container_restarts_until_it_succeeds(cluster, peer):
    (node,) = join(cluster, peer)
    setup = {"name": "setup", "image": "example.com/setup"}
    note = "devicemanager.io/init-exit-code"
    metadata = {"annotations": {note: "3"}}
    peer.pod("a", nodeName=node.name, metadata=metadata, initContainers=[setup])

    def init():
        return peer.get("a")["status"].get("initContainerStatuses", [{"state": {}}])[0]

    peer.wait(lambda: init()["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")
    assert init()["lastState"]["terminated"]["exitCode"] == 3
    change = {"metadata": {"annotations": {note: "0"}}}
    peer.request("PATCH", pod_path(peer.name, "a"), change, patch="merge")
    peer.phase("a", "Running")
    assert init()["state"]["terminated"]["exitCode"] == 0
