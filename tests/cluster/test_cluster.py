"""Cluster on the stub: many nodes, trouble, several processes."""

import threading
from collections import Counter

import attrs
import pytest

from devicemanager.cluster import Cluster, ClusterError, Facts, NodeOptions, Range
from devicemanager.cluster.client import api as api_module
from devicemanager.cluster.client import watch as watch_module
from devicemanager.cluster.client.protocol import Priority
from devicemanager.cluster.fake_apiserver import Controllers
from devicemanager.cluster.fake_apiserver.kinds import target
from devicemanager.cluster.fake_apiserver.rights import Right
from devicemanager.cluster.node_specs import address, light_members
from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.cluster.preflight import needs
from devicemanager.cluster.shard import Shard
from tests.cluster.objects import GPU, gpu_pod


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(api_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(api_module, "LONGEST_WAIT", 0.1)
    monkeypatch.setattr(watch_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(watch_module, "LONGEST_WAIT", 0.1)


@pytest.fixture
def kubeconfig(stub, tmp_path):
    return stub.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def cluster(stub, kubeconfig):
    with Controllers(stub), Cluster.connect(kubeconfig) as found:
        yield found


def job(stub, completions, parallelism):
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
    }
    template = {"spec": spec}
    spec = {"completions": completions, "parallelism": parallelism, "template": template}
    stub.create("jobs", {"metadata": {"name": "j"}, "spec": spec})


def succeeded(stub):
    return (stub.get("jobs", "j").get("status") or {}).get("succeeded", 0)


def held(cluster):
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
QUICK = Facts(job_duration=Range(0.02))


def test_many_nodes_run_a_job(cluster, stub, until):
    nodes = cluster.join_light("n", 20, {GPU: 2}, facts=QUICK)
    assert [node.name for node in nodes] == [f"n-{index}" for index in range(20)]
    assert len({each["status"]["addresses"][0]["address"] for each in stub.all("nodes")}) == 20
    job(stub, 60, 30)
    until(lambda: succeeded(stub) == 60)
    until(lambda: not held(cluster))
    assert cluster.pod_counts() == {"Succeeded": 60}


@pytest.mark.parametrize("code", [409, 429, 500])
def test_a_tenth_of_all_requests_fails(cluster, stub, until, code, monkeypatch):
    # 429 says to wait for a second; that is not what is tested here.
    monkeypatch.setattr(api_module, "_seconds", lambda text: 0.0)
    # A conflict is an answer, not a failure: only where kubelets meet some.
    leases = ("leases",) if code == 409 else ("leases", "pods", "nodes", "events")
    stub.faults.fail(
        code,
        lambda request: request.target.kind.plural in leases and request.verb != "list",
        share=0.1,
    )
    cluster.join_light("n", 5, {GPU: 2}, facts=QUICK)
    job(stub, 30, 10)
    until(lambda: succeeded(stub) == 30)
    until(lambda: not held(cluster))
    total = sum(stub.requests.values())
    assert total < 1500, "no hot loop"


def test_versions_that_are_too_old_again_and_again(cluster, stub, until):
    cluster.join_light("n", 3, {GPU: 2}, facts=QUICK)
    job(stub, 20, 6)
    for wanted in (3, 8, 13):
        until(lambda wanted=wanted: succeeded(stub) >= wanted)
        stub.forget_changes()
        stub.cut_streams()
    until(lambda: succeeded(stub) == 20)
    until(lambda: not held(cluster))


def test_the_server_stops_and_comes_back(cluster, stub, until):
    cluster.join_light("n", 3, {GPU: 2}, facts=Facts())
    for name in "abc":
        stub.create("pods", gpu_pod(name))
    until(lambda: len(held(cluster)) == 3)
    stub.stop()
    before = held(cluster)
    stub.delete("pods", "a")
    stub.start()
    until(lambda: stub.get("pods", "a") is None)
    until(lambda: len(held(cluster)) == 2)
    assert set(held(cluster)) < set(before)


def _wipe(stub, until):
    # A watch that has not begun would begin on the new server, at a version yet to come.
    until(lambda: all(stub.requests["watch", what] for what in ("nodes", "pods")))
    stub.wipe()


def test_a_server_that_lost_everything_has_no_nodes(cluster, stub, until):
    cluster.join_light("n", 3, {GPU: 2})
    _wipe(stub, until)
    until(lambda: not cluster.nodes)


def test_nodes_that_register_again(cluster, stub, until):
    options = NodeOptions(on_deleted="register")
    cluster.join_light("n", 3, {GPU: 2}, options=options)
    _wipe(stub, until)
    until(lambda: len(stub.all("nodes")) == 3)
    assert len(cluster.nodes) == 3


def test_a_node_that_was_given_up_says_that_it_is_there(cluster, stub, until):
    cluster.join_light("n", 1, {GPU: 1})

    def unknown(node):
        for condition in node["status"]["conditions"]:
            condition["status"] = "Unknown"
        return node

    def ready():
        conditions = stub.get("nodes", "n-0")["status"]["conditions"]
        return {each["type"]: each["status"] for each in conditions}["Ready"] == "True"

    until(ready)
    stub.objects.change(target("/api/v1/nodes/n-0/status"), unknown)
    until(ready)


def test_nodes_leave_as_the_cluster_is_told_to(stub, kubeconfig):
    def there():
        return {each["metadata"]["name"] for each in stub.all("nodes")}

    with Cluster.connect(kubeconfig, leave="keep") as cluster:
        cluster.join_light("n", 3, {GPU: 1})
        cluster.leave(["n-0"])
        assert there() == {"n-0", "n-1", "n-2"} and set(cluster.nodes) == {"n-1", "n-2"}
        cluster.leave(["n-1"], how="delete")
        assert there() == {"n-0", "n-2"}
        cluster.leave()
        assert there() == {"n-0", "n-2"} and not cluster.nodes


def test_claiming_shards_takes_rights_of_its_own(stub, kubeconfig):
    allowed = {Right(need.group, need.resource, need.verb) for need in needs()}
    leases = {right for right in allowed if right.resource == "leases"}
    with Cluster.connect(kubeconfig) as cluster:
        stub.rights.allowed = frozenset(allowed)
        assert cluster.check(["n"], shards=True, namespace="ns").existing == frozenset()
        stub.rights.allowed = frozenset(allowed - leases)
        with pytest.raises(ClusterError) as without:
            cluster.check(["n"])
        with pytest.raises(ClusterError) as with_shards:
            cluster.check(["n"], shards=True, namespace="ns")
    assert "get leases in kube-node-lease" in str(without.value)
    assert "in ns" not in str(without.value)
    for verb in ("get", "create", "update"):
        assert f"{verb} leases in ns" in str(with_shards.value)


def test_parts_by_hand(stub, kubeconfig):
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_light("n", 5, {GPU: 1}, shard=Shard(1, 2))
        assert list(cluster.nodes) == ["n-1", "n-3"] or set(cluster.nodes) == {"n-1", "n-3"}
        labels = [each["metadata"]["labels"] for each in stub.all("nodes")]
        assert [each["devicemanager.io/shard"] for each in labels] == ["1", "1"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def share(cluster, identity, shards=2):
    members = light_members("n", 4, {GPU: 2}, None, NodeOptions(), Facts())
    return cluster.share(members, shards, "default", identity)


def test_parts_by_claim_and_one_that_is_left(stub, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.02)
    with Controllers(stub), Cluster.connect(kubeconfig, leave="keep") as second:
        with Cluster.connect(kubeconfig, leave="keep") as first:
            share(first, "first")
            until(lambda: len(first.nodes) == 4)
            share(second, "second")
            for name in "abcd":
                stub.create("pods", gpu_pod(name))
            until(lambda: len(held(first)) == 4)
            before = set(held(first))
            assert not second.nodes
        until(lambda: len(second.nodes) == 4)
        until(lambda: set(held(second)) == before)


def test_a_shard_that_is_lost_writes_nothing_more(stub, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.02)
    monkeypatch.setattr("devicemanager.cluster.shard.RENEWAL", 0.0)
    monkeypatch.setattr("devicemanager.cluster.shard.GIVE_UP", 600.0)
    with Cluster.connect(kubeconfig, leave="keep") as cluster:
        share(cluster, "me", shards=1)
        until(lambda: len(cluster.nodes) == 4)
        nodes = list(cluster.nodes.values())
        taken = {"spec": {"holderIdentity": "another"}}
        lease = f"{LEASES}/devicemanager-shard-0"
        cluster.connection.api.request("PATCH", lease, taken, patch="merge")
        until(lambda: not cluster.nodes)
        until(lambda: all(node.is_over for node in nodes))
        writes = {key: n for key, n in stub.requests.items() if key[0] in ("patch", "delete")}
        for node in nodes:
            node.look()
        assert cluster.connection.lane.drain(10)
        after = {key: n for key, n in stub.requests.items() if key[0] in ("patch", "delete")}
        assert after == writes


def test_a_shard_that_is_taken_again_before_all_have_joined(stub, kubeconfig, until, monkeypatch):
    """What was to join at first has the same names: it does not, and its kubelets end."""
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.02)
    monkeypatch.setattr("devicemanager.cluster.shard.RENEWAL", 0.0)
    monkeypatch.setattr("devicemanager.cluster.shard.GIVE_UP", 600.0)
    lines, go_on = [], threading.Event()
    members, made = recorded(light_members("n", 4, {GPU: 2}, None, NodeOptions(), Facts()), go_on)
    with Cluster.connect(kubeconfig, leave="keep", warn=lines.append) as cluster:
        cluster.share(members, 1, "default", "me")
        until(lambda: made)
        cluster.connection.api.request("DELETE", f"{LEASES}/devicemanager-shard-0")
        until(lambda: lines.count("shard 0 of 1 is ours: its nodes join") == 2)
        go_on.set()
        until(lambda: len(cluster.nodes) == 4 and len(made) == 8)
        ours = [node.kubelet for node in cluster.nodes.values()]
        until(lambda: [each for each in made if each.is_serving] == made[4:])
        assert sorted(map(id, ours)) == sorted(map(id, made[4:]))
    assert not [each for each in made if each.is_serving]


def recorded(members, go_on=None):
    """The members, and a list of the kubelets that are made of them; after the first of these
    it waits."""
    made = []

    def make(index):
        kubelet = members.make(index)
        made.append(kubelet)
        if go_on is not None:
            assert go_on.wait(30)
        return kubelet

    return attrs.evolve(members, make=make), made


def test_a_shard_without_a_thread_is_taken_again(stub, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.02)
    lines, start = [], threading.Thread.start
    rejections = iter([RuntimeError("can't start new thread")] * 2)

    def started(self):
        if getattr(self, "_target", None) == cluster._join_shard and (error := next(rejections, 0)):
            raise error
        start(self)

    monkeypatch.setattr(threading.Thread, "start", started)
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        share(cluster, "me", shards=1)
        until(lambda: len(cluster.nodes) == 4)
    assert "shard 0 is given back: can't start new thread" in lines


def test_nodes_that_wait_to_join_when_the_cluster_is_closed(stub, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.connection.CONNECTIONS", 1)
    cluster = Cluster.connect(kubeconfig)
    members, made = recorded(light_members("n", 3, {}, None, NodeOptions(), Facts()))
    said, over = [], threading.Event()

    def join():
        with pytest.raises(ClusterError) as raised:
            cluster.join_members(members)
        said.append(str(raised.value))
        over.set()

    # The one thread is busy until those who wait are told.
    cluster.connection.lane.put(Priority.EVENT, "busy", lambda: over.wait(20))
    threading.Thread(target=join, daemon=True).start()
    until(lambda: cluster.connection.lane.load == 4)
    cluster.close()
    assert over.wait(20)
    assert said == ["node n-0: the cluster is closed (and 2 more)"]
    assert not [each for each in made if each.is_serving]
    with pytest.raises(ClusterError, match="the cluster is closed"):
        cluster.join_members(members)
    assert len(made) == 6 and not [each for each in made if each.is_serving]


def test_nodes_that_wait_to_leave_when_the_cluster_is_closed(stub, kubeconfig, monkeypatch):
    """Their kubelets end, whatever the API server hears."""
    monkeypatch.setattr("devicemanager.cluster.connection.CONNECTIONS", 1)
    monkeypatch.setattr("devicemanager.cluster.cluster._LEAVING", 0.0)
    cluster = Cluster.connect(kubeconfig)
    members, made = recorded(light_members("n", 3, {}, None, NodeOptions(), Facts()))
    cluster.join_members(members)
    running, closing = threading.Event(), threading.Event()

    def busy():
        running.set()
        assert closing.wait(20)

    cluster.connection.lane.put(Priority.DELETION, "busy", busy)
    assert running.wait(20)
    cluster.leave()
    assert [each.is_serving for each in made] == [True] * 3
    monkeypatch.setattr(cluster.connection.heartbeat, "close", lambda seconds: closing.set())
    cluster.close()
    assert [each.is_serving for each in made] == [False] * 3


@pytest.mark.parametrize("leave_too", [False, True])
def test_a_node_that_cannot_join_for_any_reason_gives_its_kubelet_back(
    stub, kubeconfig, monkeypatch, leave_too
):
    lines = []
    members, made = recorded(light_members("n", 2, {}, None, NodeOptions(), Facts()))
    join, leave = ClusterNode.join, ClusterNode.leave

    def wrong(self):
        if self.name == "n-1":
            raise KeyError("uid")
        join(self)

    def leaves(self, how="delete"):
        if leave_too and self.name == "n-1":
            raise OSError("no descriptor")
        leave(self, how)

    monkeypatch.setattr(ClusterNode, "join", wrong)
    monkeypatch.setattr(ClusterNode, "leave", leaves)
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        with pytest.raises(ClusterError, match="node n-1: 'uid'"):
            cluster.join_members(members)
        joined = [cluster.nodes["n-0"].kubelet]
        assert [each for each in made if each.is_serving] == joined
    said = "OSError: no descriptor" if leave_too else "KeyError: 'uid'"
    assert lines == [f"unexpected {said} (a bug)"]


def test_a_node_that_has_left_as_soon_as_it_joined(stub, kubeconfig):
    """Its Node was there, and its status may not be written any more."""
    with Cluster.connect(kubeconfig, leave="keep") as before:
        before.join_light("n", 1, {GPU: 1})
    allowed = {Right(need.group, need.resource, need.verb) for need in needs()}
    warnings = []
    with Cluster.connect(kubeconfig, warn=warnings.append) as cluster:
        stub.rights.allowed = frozenset(allowed - {Right("", "nodes/status", "patch")})
        members = light_members("n", 1, {GPU: 1}, None, NodeOptions(), Facts())
        with pytest.raises(ClusterError, match=r"^node n-0: it has left already, as a warning"):
            cluster.join_members(members)
        assert not cluster.nodes
        (warning,) = warnings
        assert warning.startswith("node n-0 has left: nodes is forbidden")


def test_a_node_that_is_over_is_none_of_ours(stub, kubeconfig, until, monkeypatch):
    """While what is left of it is still being given back."""
    seen = []

    def end(node):
        over = end_of_node(node)
        seen.append(dict(cluster.nodes))
        return over

    end_of_node = ClusterNode._end
    monkeypatch.setattr(ClusterNode, "_end", end)
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_light("n", 1, {GPU: 1})
        stub.delete("nodes", "n-0")
        until(lambda: seen)
    assert seen == [{}]


def test_a_kubelet_that_cannot_be_made_ends_those_before_it(stub, kubeconfig, until, monkeypatch):
    monkeypatch.setattr("devicemanager.cluster.shard.LOOK", 0.02)
    members, made = recorded(light_members("n", 3, {}, None, NodeOptions(), Facts()))

    def make(index):
        if index == 2:
            raise ClusterError("no inotify instance is left")
        return members.make(index)

    lines = []
    with Cluster.connect(kubeconfig, warn=lines.append) as cluster:
        broken = attrs.evolve(members, make=make)
        with pytest.raises(ClusterError, match="no inotify instance is left"):
            cluster.join_members(broken)
        assert [each.is_serving for each in made] == [False] * 2
        cluster.share(broken, 1, "default", "me")
        until(lambda: "shard 0: no inotify instance is left" in lines)
        assert [each.is_serving for each in made] == [False] * 4


def test_nodes_that_no_thread_is_left_for(stub, kubeconfig, until, monkeypatch):
    """Neither for the watches, nor for the second of them, nor for what joins."""
    members, made = recorded(light_members("n", 2, {GPU: 2}, None, NodeOptions(), Facts()))
    before, start, names = set(threading.enumerate()), threading.Thread.start, ""

    def only(self):
        if not self.name.startswith(names):
            raise RuntimeError("can't start new thread")
        start(self)

    with Controllers(stub), Cluster.connect(kubeconfig) as cluster:
        for allowed in ("none", f"watch {PODS}", "watch"):
            names = allowed
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", only)
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    cluster.join_members(members)
        assert [each.is_serving for each in made] == [False] * 6
        # Once there are some, each watch is there once.
        cluster.join_members(members)
        started = Counter(each.name for each in threading.enumerate() if each not in before)
        assert [started[f"watch {path}"] for path in (PODS, NODES)] == [1, 1]
        stub.create("pods", gpu_pod("a"))
        until(lambda: cluster.pod_counts() == {"Running": 1})


def test_one_that_cannot_join_is_named(stub, kubeconfig):
    stub.faults.fail(422, lambda request: request.verb == "create", times=1)
    cluster = Cluster.connect(kubeconfig)
    members, made = recorded(light_members("n", 3, {}, None, NodeOptions(), Facts()))
    with pytest.raises(ClusterError, match="422"):
        cluster.join_members(members)
    assert len(cluster.nodes) == 2
    joined = [node.kubelet for node in cluster.nodes.values()]
    assert [each.is_serving for each in made] == [each in joined for each in made]
    cluster.close()
    assert stub.all("nodes") == []
    assert not any(each.is_serving for each in made)


def test_nothing_is_left_behind(stub, kubeconfig, until):
    before = set(threading.enumerate())
    with Cluster.connect(kubeconfig) as cluster:
        cluster.join_light("n", 3, {GPU: 1})
    ours = ("api-lane", "leases", "watch", "shards")
    until(
        lambda: (
            not [each for each in set(threading.enumerate()) - before if each.name.startswith(ours)]
        )
    )


def test_numbers_that_cannot_be(kubeconfig):
    for count, full in ((0, 0), (100_001, 0), (1, 2)):
        with pytest.raises(ClusterError, match="give a number from"):
            light_members("n", count, {}, None, NodeOptions(), Facts(), full=full)


def test_addresses_are_loopbacks_unless_this_is_a_pod(monkeypatch):
    monkeypatch.delenv("POD_IP", raising=False)
    assert address(0) == "127.1.0.0"
    assert address(99_999) == "127.2.134.159"
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    assert address(3) == "10.0.0.7"
