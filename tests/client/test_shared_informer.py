"""Pods and Nodes reach their nodes: all events, once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.client.shared_informer import NodeInformer, PodInformer


class RecordingHandler:
    def __init__(self):
        self.calls = []

    def on_pod_list(self, objects):
        self.calls.append(("list", sorted(each["metadata"]["uid"] for each in objects)))

    def on_pod_event(self, kind, object_):
        self.calls.append((kind, object_["metadata"]["uid"]))


def pod(uid, node="n", version=1):
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, "spec": {"nodeName": node}}


def informer(*names):
    found = PodInformer()
    for name in names:
        found.expect(name)
    return found


def test_each_node_gets_its_own_pods():
    pods, n, m = informer("n", "m"), RecordingHandler(), RecordingHandler()
    pods.add_handler("n", n)
    pods.add_handler("m", m)
    pods.replace([pod("a"), pod("b", "m"), pod("c", "theirs")])
    pods.apply("ADDED", pod("d", "m", 2))
    pods.apply("ADDED", pod("e", "theirs", 3))
    assert n.calls == [("list", ["a"])]
    assert m.calls == [("list", ["b"]), ("ADDED", "d")]


def test_events_before_the_handler_are_collected():
    pods, handler = informer("n"), RecordingHandler()
    pods.replace([pod("a"), pod("b")])
    pods.apply("DELETED", pod("a", version=2))
    pods.apply("ADDED", pod("c", version=3))
    pods.add_handler("n", handler)
    pods.apply("MODIFIED", pod("c", version=4))
    assert handler.calls == [("list", ["b", "c"]), ("MODIFIED", "c")]


def test_pods_with_opaque_versions_are_delivered():
    pods, handler = informer("n"), RecordingHandler()
    pods.replace([pod("a", version="opaque")])
    pods.apply("ADDED", pod("b", version="opaque"))
    pods.add_handler("n", handler)
    assert handler.calls == [("list", ["a", "b"])]


def test_no_notification_before_first_list():
    pods, handler = informer("n"), RecordingHandler()
    pods.add_handler("n", handler)
    pods.apply("ADDED", pod("a"))
    assert handler.calls == []
    pods.replace([pod("a", version=2)])
    assert handler.calls == [("list", ["a"])]


def test_late_node_gets_its_own_list_merged_with_events():
    pods, handler = informer("n"), RecordingHandler()
    pods.replace([])
    assert pods.has_listed
    pods.expect("late")
    pods.add_handler("late", handler)
    pods.apply("DELETED", pod("gone", "late", 9))
    pods.apply("ADDED", pod("new", "late", 10))
    pods.complete("late", [pod("gone", "late", 8), pod("old", "late", 7)])
    assert handler.calls == [("list", ["new", "old"])]
    pods.complete("late", [])
    assert len(handler.calls) == 1


def test_node_that_joins_during_a_relist_gets_the_pods_of_the_relist():
    """Its own LIST can be newer: a pod would come, go and come again."""
    pods, handler = informer(), RecordingHandler()
    pods.replace([])
    pods.begin_list()
    pods.expect("late")
    pods.add_handler("late", handler)
    pods.complete("late", [pod("a", "late", 9)])
    pods.replace([pod("b", "late", 7)])
    pods.apply("ADDED", pod("a", "late", 9))
    assert handler.calls == [("list", ["b"]), ("ADDED", "a")]


def test_relist_replaces_all_pods():
    pods, handler = informer("n"), RecordingHandler()
    pods.add_handler("n", handler)
    pods.replace([pod("a")])
    pods.replace([])
    assert handler.calls == [("list", ["a"]), ("list", [])]


def test_dropped_node_gets_no_event():
    pods, handler = informer("n"), RecordingHandler()
    pods.add_handler("n", handler)
    pods.replace([])
    pods.drop("n")
    pods.drop("unknown")
    pods.apply("ADDED", pod("a"))
    pods.complete("n", [])
    assert handler.calls == [("list", [])]
    assert list(pods.names) == []


STEPS = st.lists(st.tuples(st.sampled_from(["ADDED", "DELETED"]), st.sampled_from("abc")))


@given(STEPS, st.integers(0, 10))
def test_result_does_not_depend_on_when_the_handler_is_added(steps, when):
    pods, handler = informer("n"), RecordingHandler()
    pods.replace([])
    existing = set()
    for version, (kind, uid) in enumerate(steps, start=2):
        if version - 2 == when:
            pods.add_handler("n", handler)
        pods.apply(kind, pod(uid, version=version))
        (existing.add if kind == "ADDED" else existing.discard)(uid)
    if len(steps) <= when:
        pods.add_handler("n", handler)
    known = set()
    for what, about in handler.calls:
        if what == "list":
            known = set(about)
        else:
            (known.add if what == "ADDED" else known.discard)(about)
    assert known == existing


def node(name):
    return {"metadata": {"name": name, "uid": "v", "resourceVersion": "1"}}


class Node:
    uid = "u"

    def __init__(self, calls):
        self._calls = calls

    def on_node_event(self, kind, object_):
        self._calls.append((kind, object_["metadata"]["name"], object_["metadata"]["uid"]))

    def verify(self):
        self._calls.append("verify")


def test_nodes_missing_from_a_list_are_deleted_unless_they_just_joined():
    """Those that just joined may have been deleted, too: no event would follow."""
    nodes, calls = NodeInformer(), []
    for name in ("a", "b"):
        nodes.add_handler(name, Node(calls))
    nodes.begin_list()
    nodes.add_handler("c", Node(calls))
    nodes.replace([node("a"), node("theirs")])
    nodes.apply("DELETED", node("a"))
    nodes.apply("DELETED", node("theirs"))
    nodes.drop("a")
    nodes.apply("ADDED", node("a"))
    assert calls == [
        ("MODIFIED", "a", "v"),
        ("DELETED", "b", "u"),
        "verify",
        ("DELETED", "a", "v"),
    ]


def test_any_returns_a_node_with_its_current_uid():
    nodes, first = NodeInformer(), Node([])
    assert nodes.any() is None
    first.uid = "1"
    nodes.add_handler("a", first)
    assert nodes.any() == ("a", "1")
    first.uid = "2"
    assert nodes.any() == ("a", "2")
    nodes.drop("a")
    assert nodes.any() is None
