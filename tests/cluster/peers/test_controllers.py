"""Tests that need a real control plane: its scheduler, controllers and admission."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from devicemanager import cli
from devicemanager.client.api import node_path, pod_path
from devicemanager.client.errors import Forbidden
from devicemanager.cluster import Cluster, ClusterError, NodeOptions
from devicemanager.kubelet.settings import Settings
from tests.cluster.peers.processes import start, stop

GPU = "vendor.com/gpu"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture
def peer(make_peer):
    return make_peer("real")


def join(cluster, peer, count=1, gpus=2, **more):
    options = NodeOptions(labels={"group": peer.name})
    nodes = cluster.join_in_memory(peer.name, count, {GPU: gpus}, options=options, **more)
    peer.ready(*(node.name for node in nodes))
    return nodes


def workload(peer, plural, name, gpus=1, **spec):
    container = {
        "name": "main",
        "image": "example.com/main",
        "resources": {"limits": {GPU: str(gpus)}} if gpus else {},
    }
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "tolerations": [{"key": "devicemanager.io/virtual", "operator": "Exists"}],
            "nodeSelector": {"group": peer.name},
            "terminationGracePeriodSeconds": 1,
        },
    }
    spec = {"selector": {"matchLabels": labels}, "template": template, **spec}
    body = {"plural": plural, "metadata": {"name": name}, "spec": spec}
    peer.create("/apis/apps/v1", body)


def running(peer, app=None):
    return [
        each
        for each in peer.pods()
        if each["status"]["phase"] == "Running"
        and "deletionTimestamp" not in each["metadata"]
        and app in (None, each["metadata"]["labels"].get("app"))
    ]


def allocated(nodes):
    found = []
    for node in nodes:
        node.kubelet.self_check()
        found += [each.pod for each in node.kubelet.inventory() if each.pod is not None]
    return found


def test_deployment_and_daemon_set_run(cluster, peer):
    nodes = join(cluster, peer, 5)
    workload(peer, "daemonsets", "d", 0)
    workload(peer, "deployments", "w", replicas=8)
    peer.wait(lambda: len(running(peer, "d")) == 5 and len(running(peer, "w")) == 8)
    path = f"/apis/apps/v1/namespaces/{peer.name}/deployments/w"
    peer.wait(lambda: peer.request("GET", path)["status"].get("readyReplicas") == 8)
    assert len(allocated(nodes)) == 8
    peer.request("PATCH", path, {"spec": {"replicas": 3}}, patch="merge")
    peer.wait(lambda: len(running(peer, "w")) == 3 and len(allocated(nodes)) == 3)


def test_quota_limits_devices_exactly(cluster, peer):
    join(cluster, peer, 3, 4)
    hard = {"hard": {f"requests.{GPU}": "5"}}
    quota = {"plural": "resourcequotas", "metadata": {"name": "q"}, "spec": hard}
    peer.create("/api/v1", quota)
    path = f"/api/v1/namespaces/{peer.name}/resourcequotas/q"
    peer.wait(lambda: peer.request("GET", path).get("status", {}).get("hard"))
    workload(peer, "deployments", "w", replicas=9)
    peer.wait(lambda: len(running(peer)) == 5)
    used = peer.wait(lambda: peer.request("GET", path)["status"]["used"])
    assert used[f"requests.{GPU}"] == "5"


def test_drained_nodes_pods_move_to_another_node(cluster, peer):
    first, second = join(cluster, peer, 2)
    workload(peer, "deployments", "w", replicas=2)
    peer.wait(lambda: len(running(peer)) == 2)
    peer.request("PATCH", node_path(first.name), {"spec": {"unschedulable": True}}, patch="merge")
    for each in running(peer):
        if each["spec"]["nodeName"] == first.name:
            name = each["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            peer.request("POST", pod_path(peer.name, name, "eviction"), eviction)
    peer.wait(lambda: [each["spec"]["nodeName"] for each in running(peer)] == [second.name] * 2)
    assert not allocated([first])


def test_node_restriction_applies_with_as_nodes(peer, control_plane):
    with Cluster.connect(peer.kubeconfig, as_nodes=True) as cluster:
        (node,) = join(cluster, peer)
        peer.pod("a")
        peer.phase("a", "Running")
        peer.delete("a")
        peer.gone("a")
        with pytest.raises(Forbidden):
            peer.request("PATCH", node_path(node.name), {}, patch="merge", user="another")


def test_expired_certificate_is_rejected(peer, control_plane):
    kubeconfig = control_plane.kubeconfig_of("late", "system:masters", days="-1")
    with (
        Cluster.connect(kubeconfig) as cluster,
        pytest.raises(ClusterError, match="rejects the credentials"),
    ):
        cluster.join_in_memory(peer.name)


def test_join_without_permissions_is_rejected(peer, control_plane):
    kubeconfig = control_plane.kubeconfig_of("powerless")
    with (
        Cluster.connect(kubeconfig) as cluster,
        pytest.raises(ClusterError, match="missing permissions: get nodes, list nodes"),
    ):
        cluster.join_in_memory(peer.name)


def test_explain_shows_why_nodes_reject_replicas(cluster, peer, tmp_path, capsys):
    """The scheduler counts devices, and nodes align them: the replicas fit no node."""
    settings = Settings(topology_policy="single-numa-node")
    nodes = join(cluster, peer, 200, "2@0,2@1", settings=settings)
    workload(peer, "deployments", "w", 3, replicas=60)

    def storm():
        rejected = [each for each in peer.pods() if each["status"].get("reason")]
        return rejected if len(rejected) > 200 else None

    rejected = peer.wait(storm)
    one = peer.get(rejected[0]["metadata"]["name"])
    path = f"/apis/apps/v1/namespaces/{peer.name}/deployments/w"
    peer.request("PATCH", path, {"spec": {"replicas": 0}}, patch="merge")
    assert {each["status"]["reason"] for each in rejected} == {"TopologyAffinityError"}
    assert {each["status"]["message"] for each in rejected} == {
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    }
    assert not allocated(nodes)
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(one))
    node = [f"--devices={GPU}=2@0,2@1", "--topology-policy=single-numa-node"]
    assert cli.main(["explain", str(manifest), *node]) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        f"pod {peer.name}/{one['metadata']['name']} rejected: TopologyAffinityError\n"
    )
    assert f"=> single-numa-node: {GPU} does not fit on one node: it needs nodes 0+1" in output


def processes(peer, count, nodes):
    words = ["--kubeconfig", peer.kubeconfig, "--prefix", peer.name, "--nodes", nodes]
    words += ["--shards", count, "--namespace", peer.name, "--leave", "keep"]
    words += ["--label", f"group={peer.name}", "--simulate", f"{GPU}=4"]
    return [
        start(
            "join",
            *words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "POD_NAME": f"process-{number}"},
        )
        for number in range(count)
    ]


def holders(peer):
    """Return the process that holds each shard."""
    found = {}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{peer.name}/leases"
    for each in peer.request("GET", path)["items"]:
        name = each["metadata"]["name"]
        # Each process also has a Lease of its own, as a member.
        if "-member-" not in name:
            found[name] = each["spec"]["holderIdentity"]
    return found


class NotReady(threading.Thread):
    """Checks every second whether a node is not Ready."""

    def __init__(self, peer, names):
        super().__init__(daemon=True)
        self.peer, self.names = peer, names
        self.found, self.stopping = set(), threading.Event()

    def run(self):
        while not self.stopping.wait(1):
            query = {"labelSelector": f"group={self.peer.name}"}
            for each in self.peer.request("GET", "/api/v1/nodes", query=query)["items"]:
                ready = {c["type"]: c["status"] for c in each["status"]["conditions"]}["Ready"]
                if ready != "True":
                    self.found.add((each["metadata"]["name"], ready))


def devices(pods):
    """Return node and ID of each device in the pods' statuses."""
    return [
        (each["spec"]["nodeName"], device["resourceID"])
        for each in pods
        for container in each["status"].get("containerStatuses", ())
        for resource in container.get("allocatedResourcesStatus", ())
        for device in resource["resources"]
    ]


def test_shards_of_a_killed_process_are_taken_over(peer):
    count = 30
    names = [f"{peer.name}-{index}" for index in range(count)]
    started = processes(peer, 3, count)
    watching = NotReady(peer, names)
    try:
        peer.wait(lambda: len(set(holders(peer).values())) == 3)  # a shard for each process
        peer.ready(*names)
        workload(peer, "deployments", "w", replicas=60)
        peer.wait(lambda: len(running(peer)) == 60)
        watching.start()
        uids = {each["metadata"]["uid"] for each in running(peer)}
        before = holders(peer)
        victims = [number for number in range(3) if f"process-{number}" in before.values()]
        victim = victims[0]
        stop(started[victim], signal.SIGKILL)
        killed = time.monotonic()
        path = f"/apis/apps/v1/namespaces/{peer.name}/deployments/w"
        peer.request("PATCH", path, {"spec": {"replicas": 90}}, patch="merge")
        peer.wait(lambda: f"process-{victim}" not in holders(peer).values())
        print(f"taken over after {time.monotonic() - killed:.1f} s")
        peer.wait(lambda: len(running(peer)) == 90)
        print(f"90 pods Running after {time.monotonic() - killed:.1f} s")
        time.sleep(max(0.0, 55 - (time.monotonic() - killed)))  # the grace period
        current = running(peer)
        assert uids <= {each["metadata"]["uid"] for each in current}
        found = devices(current)
        assert len(found) == len(set(found)) == 90
        assert not watching.found
        restarted = [
            status["restartCount"]
            for each in current
            for status in each["status"]["containerStatuses"]
            if status["restartCount"]
        ]
        assert not restarted
    finally:
        watching.stopping.set()
        for each in started:
            stop(each)
        for name in names:
            if re.fullmatch(rf"{peer.name}-\d+", name):
                peer.request("DELETE", node_path(name))


def test_nodes_survive_a_minute_without_api_server(cluster, peer, control_plane):
    nodes = join(cluster, peer, 5)
    workload(peer, "deployments", "w", replicas=8)
    peer.wait(lambda: len(running(peer)) == 8)
    before = {each["metadata"]["uid"] for each in running(peer)}
    control_plane.end("kube-apiserver")
    time.sleep(60)
    assert len(allocated(nodes)) == 8
    control_plane.start_server()
    peer.ready(*(node.name for node in nodes))
    assert {each["metadata"]["uid"] for each in running(peer)} == before
    path = f"/apis/apps/v1/namespaces/{peer.name}/deployments/w"
    peer.request("PATCH", path, {"spec": {"replicas": 0}}, patch="merge")
    peer.wait(lambda: not peer.pods() and not allocated(nodes))


def test_nodes_leave_a_server_that_lost_its_data(cluster, peer, control_plane):
    join(cluster, peer, 3)
    control_plane.wipe()
    peer.wait(lambda: not cluster.nodes)
    peer.start()
    join(cluster, peer, 3)
    peer.pod("a")
    peer.phase("a", "Running")
