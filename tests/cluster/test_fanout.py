"""Pods and nodes reach whom they are about: all of them, once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.cluster.client.shared_informer import NodeFanout, PodFanout


class Told:
    def __init__(self):
        self.calls = []

    def listed(self, objects):
        self.calls.append(("listed", sorted(each["metadata"]["uid"] for each in objects)))

    def seen(self, kind, object_):
        self.calls.append((kind, object_["metadata"]["uid"]))


def pod(uid, node="n", version=1):
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, "spec": {"nodeName": node}}


def fanout(*names):
    found = PodFanout()
    for name in names:
        found.expect(name)
    return found


def test_each_node_is_told_of_its_own():
    pods, n, m = fanout("n", "m"), Told(), Told()
    pods.receive("n", n)
    pods.receive("m", m)
    pods.listed([pod("a"), pod("b", "m"), pod("c", "theirs")])
    pods.seen("ADDED", pod("d", "m", 2))
    pods.seen("ADDED", pod("e", "theirs", 3))
    assert n.calls == [("listed", ["a"])]
    assert m.calls == [("listed", ["b"]), ("ADDED", "d")]


def test_what_comes_before_a_node_receives_is_kept():
    pods, told = fanout("n"), Told()
    pods.listed([pod("a"), pod("b")])
    pods.seen("DELETED", pod("a", version=2))
    pods.seen("ADDED", pod("c", version=3))
    pods.receive("n", told)
    pods.seen("MODIFIED", pod("c", version=4))
    assert told.calls == [("listed", ["b", "c"]), ("MODIFIED", "c")]


def test_nothing_is_told_before_a_list():
    pods, told = fanout("n"), Told()
    pods.receive("n", told)
    pods.seen("ADDED", pod("a"))
    assert told.calls == []
    pods.listed([pod("a", version=2)])
    assert told.calls == [("listed", ["a"])]


def test_a_node_that_comes_late_has_a_list_of_its_own():
    pods, told = fanout("n"), Told()
    pods.listed([])
    assert pods.has_listed
    pods.expect("late")
    pods.receive("late", told)
    pods.seen("DELETED", pod("gone", "late", 9))
    pods.seen("ADDED", pod("new", "late", 10))
    pods.complete("late", [pod("gone", "late", 8), pod("old", "late", 7)])
    assert told.calls == [("listed", ["new", "old"])]
    pods.complete("late", [])
    assert len(told.calls) == 1


def test_a_new_list_is_the_whole_truth_again():
    pods, told = fanout("n"), Told()
    pods.receive("n", told)
    pods.listed([pod("a")])
    pods.listed([])
    assert told.calls == [("listed", ["a"]), ("listed", [])]


def test_a_node_that_is_dropped_is_told_nothing():
    pods, told = fanout("n"), Told()
    pods.receive("n", told)
    pods.listed([])
    pods.drop("n")
    pods.drop("unknown")
    pods.seen("ADDED", pod("a"))
    pods.complete("n", [])
    assert told.calls == [("listed", [])]
    assert list(pods.names) == []


STEPS = st.lists(st.tuples(st.sampled_from(["ADDED", "DELETED"]), st.sampled_from("abc")))


@given(STEPS, st.integers(0, 10))
def test_when_a_node_receives_makes_no_difference(steps, when):
    pods, told = fanout("n"), Told()
    pods.listed([])
    there = set()
    for version, (kind, uid) in enumerate(steps, start=2):
        if version - 2 == when:
            pods.receive("n", told)
        pods.seen(kind, pod(uid, version=version))
        (there.add if kind == "ADDED" else there.discard)(uid)
    if len(steps) <= when:
        pods.receive("n", told)
    known = set()
    for what, about in told.calls:
        if what == "listed":
            known = set(about)
        else:
            (known.add if what == "ADDED" else known.discard)(about)
    assert known == there


def node(name):
    return {"metadata": {"name": name, "uid": "v", "resourceVersion": "1"}}


class Node:
    uid = "u"

    def __init__(self, calls):
        self._calls = calls

    def seen(self, kind, object_):
        self._calls.append((kind, object_["metadata"]["name"], object_["metadata"]["uid"]))


def test_nodes_that_are_missing_from_a_list_are_gone_unless_they_just_came():
    nodes, calls = NodeFanout(), []
    for name in ("a", "b"):
        nodes.receive(name, Node(calls))
    nodes.listing()
    nodes.receive("c", Node(calls))
    nodes.listed([node("a"), node("theirs")])
    nodes.seen("DELETED", node("a"))
    nodes.seen("DELETED", node("theirs"))
    nodes.drop("a")
    nodes.seen("ADDED", node("a"))
    assert calls == [("MODIFIED", "a", "v"), ("DELETED", "b", "u"), ("DELETED", "a", "v")]


def test_one_that_has_not_registered_again_speaks_for_the_server():
    nodes, first, second = NodeFanout(), Node([]), Node([])
    assert nodes.any() is None
    first.uid, second.uid = "1", "2"
    nodes.receive("a", first)
    nodes.receive("b", second)
    assert nodes.any() == ("a", "1")
    first.uid = "again 1"
    assert nodes.any() == ("b", "2")
    second.uid = "again 2"
    assert nodes.any() == ("a", "1")  # which the server does not know
    nodes.drop("a")
    assert nodes.any() == ("b", "2")
    nodes.drop("b")
    assert nodes.any() is None
