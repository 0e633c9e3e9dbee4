"""Which node gets which events, with shared watches."""

from devicemanager.client.watches import SharedWatches


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
