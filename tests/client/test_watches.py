"""Which node gets which events, with shared watches and with watches of each node."""

import threading

import pytest

from devicemanager.client import watches as watches_module
from devicemanager.client.errors import ClusterError, NotFound
from devicemanager.client.watches import PerNodeWatches, SharedWatches, check_descriptors


class RecordingHandler:
    uid = "u"

    def __init__(self):
        self.lists = []
        self.events = []

    def on_pod_list(self, objects):
        self.lists.append([each["metadata"]["name"] for each in objects])

    def on_pod_event(self, kind, object_):
        pass

    def on_node_event(self, kind, object_):
        self.events.append((kind, object_["metadata"]["uid"]))

    def verify(self):
        pass


def test_node_expected_while_the_first_list_ends_gets_its_pods(api, apiserver, monkeypatch):
    """The LIST of the watch ends right before the node is expected, and does not include it."""
    apiserver.create("pods", {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}})
    watches, handler = SharedWatches(api, "k=v", print), RecordingHandler()
    watches._reflectors = ()
    expect = watches._pods.expect

    def expect_after_list(name):
        watches._pods.replace([])
        expect(name)

    monkeypatch.setattr(watches._pods, "expect", expect_after_list)
    watches.expect(["n"])
    watches.add_handlers("n", handler, handler)
    assert handler.lists == [["a"]]


def test_node_that_is_deleted_before_it_has_a_handler_gets_the_event(api):
    watches, handler, later = (
        SharedWatches(api, "k=v", print),
        RecordingHandler(),
        RecordingHandler(),
    )
    watches._reflectors = ()
    watches.expect(["n", "dropped"])
    for kind, name in (("ADDED", "n"), ("DELETED", "n"), ("DELETED", "dropped"), ("DELETED", "x")):
        watches._nodes.apply(kind, {"metadata": {"name": name, "uid": "u"}})
    watches.add_handlers("n", handler, handler)
    assert handler.events == [("DELETED", "u")]
    watches.drop("dropped")
    for name in ("n", "dropped", "x"):
        watches.add_handlers(name, later, later)
    assert later.events == []


def joined(watches, apiserver, name):
    handler = RecordingHandler()
    handler.uid = apiserver.create("nodes", {"metadata": {"name": name}})["metadata"]["uid"]
    watches.add_handlers(name, handler, handler)


def test_each_watch_finds_that_the_server_lost_its_data(api, apiserver):
    """One watch finds it first. Then the nodes leave, and others join before the next check."""
    watches = SharedWatches(api, "k=v", print)
    joined(watches, apiserver, "a")
    pods, nodes = (each.exists for each in watches._witnesses)
    assert pods() and nodes()
    apiserver.wipe()
    assert not nodes()
    watches.drop("a")
    joined(watches, apiserver, "a")
    assert not pods(), "the new Node of the same name does not hide the loss"
    assert pods()


def test_node_that_has_left_is_replaced(api, apiserver):
    watches = SharedWatches(api, "k=v", print)
    joined(watches, apiserver, "a")
    joined(watches, apiserver, "b")
    exists = watches._witnesses[0].exists
    watches.drop("a")
    apiserver.delete("nodes", "a")
    assert not exists(), "one relist too many does no harm"
    assert exists()


class FakeApi:
    """An API client with one Node. It records the users of requests."""

    is_closing = False

    def __init__(self):
        self.requests = []
        self.uid = "u"

    def attempt(self, method, path, *, user):
        self.requests.append((method, path, user))
        if self.uid is None:
            raise NotFound(404, "NotFound", "", method, path)
        return {"metadata": {"uid": self.uid}}

    def stream(self, path, *, user, streams):
        return path, user, streams


made = []
"""The started watches."""


class FakeReflector:
    """A watch that runs until its source ends."""

    def __init__(self, source, path, sink, *, query, is_same, warn):
        self.source, self.path, self.sink = source, path, sink
        self.query, self.is_same, self.warn = query, is_same, warn
        made.append(self)

    def start(self):
        self.thread = threading.Thread(target=lambda: self.source.wait(20))
        self.thread.start()
        return self.thread


@pytest.fixture
def per_node(monkeypatch):
    made.clear()
    monkeypatch.setattr(watches_module, "Reflector", FakeReflector)
    watches = PerNodeWatches(FakeApi(), print)
    yield watches
    watches.close(20)


def test_each_node_has_two_watches_of_its_own(per_node):
    per_node.expect(["n"])
    handler = RecordingHandler()
    per_node.add_handlers("n", handler, handler)
    pods, nodes = made
    assert (pods.path, pods.query) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=n"})
    assert (nodes.path, nodes.query) == ("/api/v1/nodes", {"fieldSelector": "metadata.name=n"})
    assert pods.warn is nodes.warn is print
    assert pods.source is nodes.source
    assert pods.source.stream("/x")[:2] == ("/x", "n")
    pods.sink.replace(
        [{"metadata": {"name": "p", "uid": "p", "resourceVersion": "1"}, "spec": {"nodeName": "n"}}]
    )
    nodes.sink.apply("DELETED", {"metadata": {"name": "n", "uid": "u"}})
    assert handler.lists == [["p"]] and handler.events == [("DELETED", "u")]


def test_watch_of_a_node_checks_that_the_node_exists(per_node):
    handler = RecordingHandler()
    per_node.add_handlers("n", handler, handler)
    api = per_node._api
    for watch in made:
        assert watch.is_same() is True
        for uid in ("other", None):
            api.uid = uid
            assert watch.is_same() is False
        api.uid = "u"
    assert set(api.requests) == {("GET", "/api/v1/nodes/n", "n")}


def test_dropped_node_ends_its_watches_only(per_node):
    handlers = {name: RecordingHandler() for name in ("a", "b")}
    for name, handler in handlers.items():
        per_node.add_handlers(name, handler, handler)
    per_node.drop("a")
    per_node.drop("unknown")
    *first, third, fourth = made
    assert [each.source.is_closing for each in (*first, third, fourth)] == [True] * 2 + [False] * 2
    for each in first:
        each.thread.join(20)
    assert third.source.wait(0) is False
    assert third.thread.is_alive() and fourth.thread.is_alive()
    per_node.drop("b")
    assert [each.name for each in per_node._ending][-2:] == [third.thread.name, fourth.thread.name]


def test_closed_watches_have_ended(per_node):
    for name in ("a", "b"):
        per_node.add_handlers(name, RecordingHandler(), RecordingHandler())
    per_node.close(20)
    assert len(made) == 4
    assert not any(each.thread.is_alive() for each in made)


def test_watches_stop_when_the_client_closes(per_node):
    per_node.add_handlers("a", RecordingHandler(), RecordingHandler())
    source = made[0].source
    assert not source.is_closing and not source.wait(0)
    per_node._api.is_closing = True
    assert source.is_closing and source.wait(0)


@pytest.mark.parametrize(("limit", "fits"), [(328, True), (327, False), (-1, True)])
def test_two_watches_per_node_need_descriptors(monkeypatch, limit, fits):
    monkeypatch.setattr("resource.getrlimit", lambda which: (limit, -1))
    if fits:
        check_descriptors(100)
        return
    with pytest.raises(ClusterError) as raised:
        check_descriptors(100)
    assert str(raised.value) == (
        "separate watches for 100 nodes need 328 open files, but the limit is 327: raise the limit "
        "(ulimit -n) or use fewer nodes"
    )
