"""Cluster on the fake API server: many nodes, failures, several processes."""

import threading
from collections import Counter

import attrs
import pytest

from devicemanager.apiserver import Controllers, Permission
from devicemanager.client import api as api_module
from devicemanager.client import reflector as reflector_module
from devicemanager.client.shared_informer import NodeInformer
from devicemanager.client.work_queue import Priority
from devicemanager.cluster import Cluster, ClusterError, ContainerBehaviour, NodeOptions, Range
from devicemanager.cluster.node_specs import NodeSpecs
from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.cluster.preflight import required_permissions
from devicemanager.cluster.shard import Shard, ShardRunner
from tests.cluster.objects import GPU, gpu_pod, granted


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shared_lease.SETTLED", 0.0)
    monkeypatch.setattr(api_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(api_module, "LONGEST_WAIT", 0.1)
    monkeypatch.setattr(reflector_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(reflector_module, "LONGEST_WAIT", 0.1)


@pytest.fixture
def kubeconfig(apiserver, tmp_path):
    return apiserver.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def cluster(apiserver, kubeconfig):
    with Controllers(apiserver), Cluster.connect(kubeconfig) as found:
        yield found


def job(apiserver, completions, parallelism):
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"spec": spec}
    spec = {"completions": completions, "parallelism": parallelism, "template": template}
    apiserver.create("jobs", {"metadata": {"name": "j"}, "spec": spec})


def succeeded(apiserver):
    return (apiserver.get("jobs", "j").get("status") or {}).get("succeeded", 0)


def allocated(cluster):
    found = [
        (each.pod, each.id)
        for node in cluster.nodes.values()
        for each in node.kubelet.inventory()
        if each.pod is not None
    ]
    for node in cluster.nodes.values():
        node.kubelet.self_check()
    return found


PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
QUICK = ContainerBehaviour(job_duration=Range(0.02))


def test_nodes_run_a_job(cluster, apiserver, until):
    nodes = cluster.join_in_memory("n", 20, {GPU: 2}, behaviour=QUICK)
    assert [node.name for node in nodes] == [f"n-{index}" for index in range(20)]
    assert len({each["status"]["addresses"][0]["address"] for each in apiserver.all("nodes")}) == 20
    job(apiserver, 60, 30)
    until(lambda: succeeded(apiserver) == 60)
    until(lambda: not allocated(cluster))
    assert cluster.pod_counts() == {"Succeeded": 60}


@pytest.mark.parametrize("code", [409, 429, 500])
def test_job_completes_while_requests_fail(cluster, apiserver, until, code, monkeypatch):
    # Ignore Retry-After, or each 429 would take a second.
    monkeypatch.setattr(api_module, "_seconds", lambda text: 0.0)
    # Nodes do not retry a conflict at once.
    failing = ("leases", "pods") if code == 409 else ("leases", "pods", "nodes", "events")
    apiserver.faults.fail(
        code,
        lambda request: request.resource in failing and request.verb != "list",
        probability=0.1,
    )
    cluster.join_in_memory("n", 5, {GPU: 2}, behaviour=QUICK)
    job(apiserver, 30, 10)
    until(lambda: succeeded(apiserver) == 30)
    until(lambda: not allocated(cluster))
    total = sum(apiserver.requests.values())
    assert total < 1500, "retries must not be a busy loop"


def test_job_completes_with_expired_watches(cluster, apiserver, until):
    cluster.join_in_memory("n", 3, {GPU: 2}, behaviour=QUICK)
    job(apiserver, 20, 6)
    for wanted in (3, 8, 13):
        until(lambda wanted=wanted: succeeded(apiserver) >= wanted)
        apiserver.forget_changes()
        apiserver.cut_streams()
    until(lambda: succeeded(apiserver) == 20)
    until(lambda: not allocated(cluster))


def test_server_restart_loses_no_event(cluster, apiserver, until):
    cluster.join_in_memory("n", 3, {GPU: 2}, behaviour=ContainerBehaviour())
    for name in "abc":
        apiserver.create("pods", gpu_pod(name))
    until(lambda: len(allocated(cluster)) == 3)
    apiserver.stop()
    before = allocated(cluster)
    apiserver.delete("pods", "a")
    apiserver.start()
    until(lambda: apiserver.get("pods", "a") is None)
    until(lambda: len(allocated(cluster)) == 2)
    assert set(allocated(cluster)) < set(before)


def wipe(apiserver, until):
    # A watch that starts after the wipe would wait for a version in the future.
    until(lambda: all(apiserver.requests["watch", what] for what in ("nodes", "pods")))
    apiserver.wipe()


def test_nodes_leave_a_server_that_lost_its_data(cluster, apiserver, until):
    cluster.join_in_memory("n", 3, {GPU: 2})
    wipe(apiserver, until)
    until(lambda: not cluster.nodes)


def test_nodes_register_again_on_a_server_that_lost_its_data(cluster, apiserver, until):
    options = NodeOptions(on_deleted="register")
    cluster.join_in_memory("n", 3, {GPU: 2}, options=options)
    wipe(apiserver, until)
    until(lambda: len(apiserver.all("nodes")) == 3)
    assert len(cluster.nodes) == 3


def test_node_with_unknown_conditions_writes_its_status(cluster, apiserver, until):
    cluster.join_in_memory("n", 1, {GPU: 1})

    def unknown(node):
        for condition in node["status"]["conditions"]:
            condition["status"] = "Unknown"
        return node

    def ready():
        conditions = apiserver.get("nodes", "n-0")["status"]["conditions"]
        return {each["type"]: each["status"] for each in conditions}["Ready"] == "True"

    until(ready)
    apiserver.change("nodes", "n-0", unknown, subresource="status")
    until(ready)


def test_leave_uses_the_default_of_the_cluster(apiserver, kubeconfig):
    def names():
        return {each["metadata"]["name"] for each in apiserver.all("nodes")}

    with Cluster.connect(kubeconfig, leave="keep") as cluster:
        cluster.join_in_memory("n", 3, {GPU: 1})
        cluster.leave(["n-0"])
        assert names() == {"n-0", "n-1", "n-2"} and set(cluster.nodes) == {"n-1", "n-2"}
        cluster.leave(["n-1"], how="delete")
        assert names() == {"n-0", "n-2"}
        cluster.leave()
        assert names() == {"n-0", "n-2"} and not cluster.nodes


def test_check_includes_permissions_for_shards(apiserver, kubeconfig):
    allowed = granted(required_permissions())
    leases = {each for each in allowed if each.resource == "leases"}
    with Cluster.connect(kubeconfig) as cluster:
        apiserver.permissions.allowed = allowed
        assert cluster.check(["n"], shards=True, namespace="ns").existing == frozenset()
        apiserver.permissions.allowed = allowed - leases
        with pytest.raises(ClusterError) as without:
            cluster.check(["n"])
        with pytest.raises(ClusterError) as with_shards:
            cluster.check(["n"], shards=True, namespace="ns")
    assert "get leases in kube-node-lease" in str(without.value)
    assert "in ns" not in str(without.value)
    for verb in ("get", "create", "update"):
        assert f"{verb} leases in ns" in str(with_shards.value)


def test_join_in_memory_with_a_shard(apiserver, kubeconfig):
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_in_memory("n", 5, {GPU: 1}, shard=Shard(1, 2))
        assert set(cluster.nodes) == {"n-1", "n-3"}
        labels = [each["metadata"]["labels"] for each in apiserver.all("nodes")]
        assert [each["devicemanager.io/shard"] for each in labels] == ["1", "1"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def share(cluster, identity, shards=2):
    cluster.join_shards(NodeSpecs.numbered("n", 4, {GPU: 2}), shards, "default", identity)


def test_process_takes_over_the_shards_of_another(apiserver, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    with Controllers(apiserver), Cluster.connect(kubeconfig, leave="keep") as second:
        with Cluster.connect(kubeconfig, leave="keep") as first:
            share(first, "first", shards=1)
            until(lambda: len(first.nodes) == 4)
            share(second, "second", shards=1)
            for name in "abcd":
                apiserver.create("pods", gpu_pod(name))
            until(lambda: len(allocated(first)) == 4)
            before = set(allocated(first))
            assert not second.nodes
        until(lambda: len(second.nodes) == 4)
        until(lambda: set(allocated(second)) == before)


def test_process_that_joins_later_gets_its_part(apiserver, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    lines = []
    with (
        Controllers(apiserver),
        Cluster.connect(kubeconfig, warn=lines.append) as first,
        Cluster.connect(kubeconfig) as second,
    ):
        share(first, "first")
        until(lambda: len(first.nodes) == 4)
        for name in "abcd":
            apiserver.create("pods", gpu_pod(name))
        until(lambda: len(allocated(first)) == 4)
        before = set(allocated(first))
        share(second, "second")
        until(lambda: (set(first.nodes), set(second.nodes)) == ({"n-0", "n-2"}, {"n-1", "n-3"}))
        until(lambda: {*allocated(first), *allocated(second)} == before)
    assert "shard 1 given back: another process has fewer shards" in lines


def test_lost_shard_writes_nothing(apiserver, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    monkeypatch.setattr("devicemanager.cluster.shared_lease.RENEWAL", 0.0)
    monkeypatch.setattr("devicemanager.cluster.shard.GIVE_UP", 600.0)
    with Cluster.connect(kubeconfig, leave="keep") as cluster:
        share(cluster, "me", shards=1)
        until(lambda: len(cluster.nodes) == 4)
        nodes = list(cluster.nodes.values())
        other_holder = {"spec": {"holderIdentity": "another"}}
        lease = f"{LEASES}/devicemanager-shard-0"
        cluster._connection.api.request("PATCH", lease, other_holder, patch="merge")
        until(lambda: not cluster.nodes)
        until(lambda: all(node.is_over for node in nodes))
        writes = {key: n for key, n in apiserver.requests.items() if key[0] in ("patch", "delete")}
        for node in nodes:
            node.refresh()
        assert cluster._connection.work_queue.drain(10)
        after = {key: n for key, n in apiserver.requests.items() if key[0] in ("patch", "delete")}
        assert after == writes


def test_shard_acquired_again_waits_for_the_earlier_join(apiserver, kubeconfig, until, monkeypatch):
    """The nodes of the earlier tenure have the same names: their kubelets end, and only the new
    nodes join."""
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    monkeypatch.setattr("devicemanager.cluster.shared_lease.RENEWAL", 0.0)
    monkeypatch.setattr("devicemanager.cluster.shard.GIVE_UP", 600.0)
    lines, go_on = [], threading.Event()
    specs, made = recorded(NodeSpecs.numbered("n", 4, {GPU: 2}), go_on)
    with Cluster.connect(kubeconfig, leave="keep", warn=lines.append) as cluster:
        cluster.join_shards(specs, 1, "default", "me")
        until(lambda: made)
        cluster._connection.api.request("DELETE", f"{LEASES}/devicemanager-shard-0")
        until(lambda: lines.count("shard 0 of 1 acquired: its nodes join") == 2)
        go_on.set()
        until(lambda: len(cluster.nodes) == 4 and len(made) == 8)
        ours = [node.kubelet for node in cluster.nodes.values()]
        until(lambda: [each for each in made if each.is_serving] == made[4:])
        assert sorted(map(id, ours)) == sorted(map(id, made[4:]))
    assert not [each for each in made if each.is_serving]


def recorded(specs, go_on=None):
    """Return specs that record their kubelets in a list, and the list.

    With ``go_on``, the creation of each kubelet waits for it.
    """
    made = []

    def make(index):
        kubelet = specs.make(index)
        made.append(kubelet)
        if go_on is not None:
            assert go_on.wait(30)
        return kubelet

    return attrs.evolve(specs, make=make), made


def test_shard_is_acquired_again_after_a_thread_error(apiserver, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    lines, start = [], threading.Thread.start

    def runs_a_shard(thread):
        owner = getattr(getattr(thread, "_target", None), "__self__", None)
        return isinstance(owner, ShardRunner)

    errors = iter([RuntimeError("can't start new thread")] * 2)

    def started(self):
        if runs_a_shard(self) and (error := next(errors, 0)):
            raise error
        start(self)

    monkeypatch.setattr(threading.Thread, "start", started)
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        share(cluster, "me", shards=1)
        until(lambda: len(cluster.nodes) == 4)
    assert "shard 0 released: can't start new thread" in lines


def test_close_drops_nodes_that_wait_to_join(apiserver, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.connection.CONNECTIONS", 1)
    cluster = Cluster.connect(kubeconfig)
    specs, made = recorded(NodeSpecs.numbered("n", 3, {}))
    messages, over = [], threading.Event()

    def join():
        with pytest.raises(ClusterError) as raised:
            cluster.join_specs(specs)
        messages.append(str(raised.value))
        over.set()

    # The only thread is busy until the waiting nodes are dropped.
    cluster._connection.work_queue.put(Priority.EVENT, "busy", lambda: over.wait(20))
    threading.Thread(target=join, daemon=True).start()
    until(lambda: cluster.pending_requests == 4)
    cluster.close()
    assert over.wait(20)
    assert messages == ["node n-0: the cluster is closed (and 2 more)"]
    assert not [each for each in made if each.is_serving]
    with pytest.raises(ClusterError, match=r"^node n-\d: the cluster is closed"):
        cluster.join_specs(specs)
    assert len(made) == 6 and not [each for each in made if each.is_serving]


def test_close_ends_kubelets_of_nodes_that_wait_to_leave(apiserver, kubeconfig, monkeypatch):
    """Their kubelets end, even though no request is sent."""
    monkeypatch.setattr("devicemanager.cluster.connection.CONNECTIONS", 1)
    monkeypatch.setattr("devicemanager.cluster.cluster._LEAVE_TIMEOUT", 0.0)
    cluster = Cluster.connect(kubeconfig)
    specs, made = recorded(NodeSpecs.numbered("n", 3, {}))
    cluster.join_specs(specs)
    running, closing = threading.Event(), threading.Event()

    def busy():
        running.set()
        assert closing.wait(20)

    cluster._connection.work_queue.put(Priority.DELETION, "busy", busy)
    assert running.wait(20)
    cluster.leave()
    assert [each.is_serving for each in made] == [True] * 3
    monkeypatch.setattr(cluster._connection.leases, "close", lambda seconds: closing.set())
    cluster.close()
    assert [each.is_serving for each in made] == [False] * 3


@pytest.mark.parametrize("leave_too", [False, True])
def test_unexpected_error_during_join_ends_the_kubelet(
    apiserver, kubeconfig, monkeypatch, leave_too
):
    lines = []
    specs, made = recorded(NodeSpecs.numbered("n", 2, {}))
    join, leave = ClusterNode.join, ClusterNode.leave

    def failing_join(self):
        if self.name == "n-1":
            raise KeyError("uid")
        join(self)

    def failing_leave(self, how="delete"):
        if leave_too and self.name == "n-1":
            raise OSError("no descriptor")
        leave(self, how)

    monkeypatch.setattr(ClusterNode, "join", failing_join)
    monkeypatch.setattr(ClusterNode, "leave", failing_leave)
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        with pytest.raises(ClusterError, match=r"^node n-\d: 'uid'"):
            cluster.join_specs(specs)
        joined = [cluster.nodes["n-0"].kubelet]
        assert [each for each in made if each.is_serving] == joined
    error = "OSError: no descriptor" if leave_too else "KeyError: 'uid'"
    assert lines == [f"unexpected {error} (a bug)"]


def test_node_that_leaves_while_joining_is_an_error(apiserver, kubeconfig):
    """The Node exists, and its status must not be written."""
    with Cluster.connect(kubeconfig, leave="keep") as before:
        before.join_in_memory("n", 1, {GPU: 1})
    allowed = granted(required_permissions())
    warnings = []
    with Cluster.connect(kubeconfig, warn=warnings.append) as cluster:
        apiserver.permissions.allowed = allowed - {Permission("", "nodes/status", "patch")}
        specs = NodeSpecs.numbered("n", 1, {GPU: 1})
        with pytest.raises(ClusterError, match=r"^node n-0: the node left immediately after"):
            cluster.join_specs(specs)
        assert not cluster.nodes
        (warning,) = warnings
        assert warning.startswith("node n-0 has left: nodes is forbidden")


def test_node_deleted_before_the_first_list_leaves(apiserver, kubeconfig, until, monkeypatch):
    """The LIST began before the node joined, and lacks it. No event follows."""
    begin, deleted = NodeInformer.begin_list, threading.Event()
    before_list = []

    def begin_list(informer):
        begin(informer)
        before_list.append(set(informer._before_list))
        deleted.wait(30)

    monkeypatch.setattr(NodeInformer, "begin_list", begin_list)
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_in_memory("n", 1, {GPU: 1})
        apiserver.delete("nodes", "n-0")
        deleted.set()
        until(lambda: not cluster.nodes)
    assert before_list[0] == set()


def test_nodes_excludes_a_node_that_is_leaving(apiserver, kubeconfig, until, monkeypatch):
    """It is excluded from the start of its end, before its kubelet is disposed of."""
    seen = []

    def end(node):
        over = end_of_node(node)
        seen.append(dict(cluster.nodes))
        return over

    end_of_node = ClusterNode._end
    monkeypatch.setattr(ClusterNode, "_end", end)
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_in_memory("n", 1, {GPU: 1})
        apiserver.delete("nodes", "n-0")
        until(lambda: seen)
    assert seen == [{}]


def test_node_that_left_is_forgotten_but_not_its_successor(apiserver, kubeconfig, until):
    with Cluster.connect(kubeconfig) as cluster:
        (first,) = cluster.join_in_memory("n", 1, {GPU: 1})
        cluster.abandon(["n-0"])
        (second,) = cluster.join_in_memory("n", 1, {GPU: 1})
        cluster._on_left(first)
        assert dict(cluster.nodes) == {"n-0": second}
        apiserver.delete("nodes", "n-0")
        until(lambda: not cluster._nodes)


def test_failing_kubelet_ends_the_kubelets_created_before(
    apiserver, kubeconfig, until, monkeypatch
):
    monkeypatch.setattr("devicemanager.cluster.shard.INTERVAL", 0.02)
    specs, made = recorded(NodeSpecs.numbered("n", 3, {}))

    def make(index):
        if index == 2:
            raise ClusterError("no inotify instance available")
        return specs.make(index)

    lines = []
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        broken = attrs.evolve(specs, make=make)
        with pytest.raises(ClusterError, match=r"^no inotify instance available"):
            cluster.join_specs(broken)
        assert [each.is_serving for each in made] == [False] * 2
        cluster.join_shards(broken, 1, "default", "me")
        until(lambda: "shard 0: no inotify instance available" in lines)
        assert [each.is_serving for each in made] == [False] * 4


def test_join_without_threads_can_be_repeated(apiserver, kubeconfig, until, monkeypatch):
    """No thread for the first watch, for the second watch, or for the work queue."""
    specs, made = recorded(NodeSpecs.numbered("n", 2, {GPU: 2}))
    before, start, names = set(threading.enumerate()), threading.Thread.start, ""

    def only(self):
        if not self.name.startswith(names):
            raise RuntimeError("can't start new thread")
        start(self)

    with Controllers(apiserver), Cluster.connect(kubeconfig) as cluster:
        for allowed in ("none", f"watch {PODS}", "watch"):
            names = allowed
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", only)
                with pytest.raises(RuntimeError, match=r"^can't start new thread"):
                    cluster.join_specs(specs)
        assert [each.is_serving for each in made] == [False] * 6
        # Each watch was started only once.
        cluster.join_specs(specs)
        started = Counter(each.name for each in threading.enumerate() if each not in before)
        assert [started[f"watch {path}"] for path in (PODS, NODES)] == [1, 1]
        apiserver.create("pods", gpu_pod("a"))
        until(lambda: cluster.pod_counts() == {"Running": 1})


def test_join_names_the_node_that_failed(apiserver, kubeconfig):
    apiserver.faults.fail(422, lambda request: request.verb == "create", times=1)
    cluster = Cluster.connect(kubeconfig)
    specs, made = recorded(NodeSpecs.numbered("n", 3, {}))
    with pytest.raises(ClusterError, match=r"^node n-\d: POST /api/v1/nodes: 422"):
        cluster.join_specs(specs)
    assert len(cluster.nodes) == 2
    joined = [node.kubelet for node in cluster.nodes.values()]
    assert [each.is_serving for each in made] == [each in joined for each in made]
    cluster.close()
    assert apiserver.all("nodes") == []
    assert not any(each.is_serving for each in made)


def test_close_ends_all_threads(apiserver, kubeconfig, until):
    before = set(threading.enumerate())
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_in_memory("n", 3, {GPU: 1})
    ours = ("api-worker", "leases", "watch", "shards")
    until(
        lambda: (
            not [each for each in set(threading.enumerate()) - before if each.name.startswith(ours)]
        )
    )
