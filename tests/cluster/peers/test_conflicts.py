"""Writes of pods that the API server refuses because another client was faster, on the fake and on
a real control plane."""

import threading
from collections import Counter

import pytest

from devicemanager.client.api import ApiClient, pod_path
from devicemanager.client.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from devicemanager.cluster import Cluster
from devicemanager.cluster.options import NodeOptions

GPU = "vendor.com/gpu"

pytestmark = pytest.mark.timeout(900)


class Writes:
    """Writes of nodes about pods: a test can change them before they are sent."""

    def __init__(self):
        self.errors = []
        self.before = lambda method, path, body: body
        """Function that is called before each write, and returns the body to send."""


@pytest.fixture
def writes(monkeypatch):
    """Statuses and deletions that nodes write, with the errors that the API server returns."""
    found = Writes()
    attempt = ApiClient.attempt

    def counted(self, method, path, body=None, **more):
        is_status = method == "PATCH" and path.endswith("/status")
        is_deletion = method == "DELETE" and "preconditions" in (body or {})
        if "/pods/" not in path or not (is_status or is_deletion):
            return attempt(self, method, path, body, **more)
        try:
            return attempt(self, method, path, found.before(method, path, body), **more)
        except ApiError as error:
            found.errors.append(error)
            raise

    monkeypatch.setattr(ApiClient, "attempt", counted)
    return found


def join(cluster, peer, count, gpus):
    options = NodeOptions(labels={"group": peer.name}, status_interval=0.5)
    nodes = cluster.join_in_memory(peer.name, count, {GPU: gpus}, options=options)
    peer.ready(*(node.name for node in nodes))
    return nodes


def allocated(*nodes):
    found = []
    for node in nodes:
        node.kubelet.self_check()
        found += [each for each in node.kubelet.inventory() if each.pod is not None]
    return len(found)


def test_conflicts_lose_no_pod(cluster, peer, writes):
    """Two of three writes of each pod name an old version of the pod, so they get a 409."""
    counts = Counter()

    def outdated(method, path, body):
        counts[method, path] += 1
        if counts[method, path] % 3 == 0:
            return body
        place = "metadata" if method == "PATCH" else "preconditions"
        return {**body, place: {**body[place], "resourceVersion": "1"}}

    writes.before = outdated
    nodes = join(cluster, peer, 4, 5)
    names = [f"p{index}" for index in range(20)]
    for name in names:
        peer.pod(name)
    peer.wait(lambda: [each["status"]["phase"] for each in peer.pods()] == ["Running"] * 20)
    assert allocated(*nodes) == 20
    for name in names:
        peer.delete(name)
    peer.wait(lambda: not peer.pods())
    assert not allocated(*nodes)
    # A write that is repeated can find that the pod has been deleted.
    assert {type(error) for error in writes.errors} <= {Conflict, NotFound}
    failed = Counter(error.method for error in writes.errors if error.code == 409)
    assert failed["PATCH"] >= 40 and failed["DELETE"] >= 40
    assert len(cluster.nodes) == 4


@pytest.mark.parametrize(
    ("as_nodes", "error"), [(False, Invalid), (True, Forbidden)], ids=["one-user", "as-nodes"]
)
def test_name_of_a_pod_returns_during_a_write(peer, writes, as_nodes, error):
    """The status is that of the first pod, so the second pod must not get it.

    The API server compares the UIDs (422). With --as-nodes, NodeRestriction denies the write before
    that (403).
    """
    returned = threading.Event()

    def recreate(method, path, body):
        if not returned.is_set():
            returned.set()
            peer.request("DELETE", pod_path(peer.name, "a"), {"gracePeriodSeconds": 0})
            peer.pod("a", nodeName=second.name)
        return body

    def is_running():
        found = peer.get("a")
        return found["metadata"]["uid"] != uid and found["status"]["phase"] == "Running"

    with Cluster.connect(peer.kubeconfig, as_nodes=as_nodes) as cluster:
        first, second = join(cluster, peer, 2, 1)
        peer.pod("a", nodeName=first.name)
        uid = peer.phase("a", "Running")["metadata"]["uid"]
        writes.before = recreate
        first.exit(uid, "main", 1)
        peer.wait(is_running)
        peer.wait(lambda: not allocated(first))
        assert allocated(second) == 1
        # The second pod can run before the API server answers the write.
        assert type(peer.wait(lambda: writes.errors)[0]) is error
        assert peer.get("a")["status"]["containerStatuses"][0]["restartCount"] == 0
        assert sorted(cluster.nodes) == [first.name, second.name]
