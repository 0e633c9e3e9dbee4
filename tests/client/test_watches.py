"""Which node gets which events, with shared watches."""

from devicemanager.client.watches import SharedWatches


class RecordingHandler:
    uid = "u"

    def __init__(self):
        self.lists = []

    def on_pod_list(self, objects):
        self.lists.append([each["metadata"]["name"] for each in objects])

    def on_pod_event(self, kind, object_):
        pass

    def on_node_event(self, kind, object_):
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
