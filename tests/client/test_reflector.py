"""The reflector, with scripted responses."""

import contextlib
import json

import pytest

from devicemanager.client.errors import Gone, NotFound, Unavailable
from devicemanager.client.reflector import Reflector, pods_on


class Script:
    """A source with given responses; it closes after the last one."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.requests = []
        self.waits = []
        self.silences = []
        self.now = 0.0
        self.lasts = 5.0

    @property
    def is_closing(self):
        return not self.responses

    def wait(self, seconds):
        self.waits.append(seconds)
        return False

    def _next(self, what, query):
        self.requests.append((what, dict(query)))
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    def attempt(self, method, path, *, query=None):
        return self._next("list", query)

    @contextlib.contextmanager
    def stream(self, path, query, *, silence):
        self.silences.append(silence)
        lines = self._next("watch", query)
        self.now += self.lasts

        def lines_of_the_stream():
            for line in lines:
                if isinstance(line, Exception):
                    raise line
                yield line if isinstance(line, bytes) else json.dumps(line).encode()

        yield lines_of_the_stream()


class RecordingSink:
    def __init__(self):
        self.calls = []

    def begin_list(self):
        self.calls.append("begin_list")

    def replace(self, objects):
        self.calls.append(("replace", [each["metadata"]["name"] for each in objects]))

    def apply(self, kind, object_):
        self.calls.append((kind, object_["metadata"]["name"]))


def page(version, *names, more=None):
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return {"metadata": metadata, "items": [thing(name) for name in names]}


def thing(name, version="0"):
    metadata = {"name": name, "uid": f"{name}-1", "resourceVersion": version}
    return {"metadata": {**metadata, "managedFields": [1]}, "spec": {}}


def event(kind, name, version):
    return {"type": kind, "object": thing(name, version)}


END = page("end")


def run(*responses, **options):
    source, sink, warnings = Script(*responses), RecordingSink(), []
    options = {"warn": warnings.append, "monotonic": lambda: source.now, **options}
    Reflector(source, "/x", sink, **options).run()
    return source, sink.calls, warnings


def versions(source):
    return [query.get("resourceVersion") for what, query in source.requests if what == "watch"]


def test_list_in_pages_then_watch():
    source, calls, _ = run(
        page("1", "a", more="t"),
        page("1", "b"),
        [event("MODIFIED", "a", "2")],
        [],
        query={"f": "s"},
    )
    assert calls == ["begin_list", ("replace", ["a", "b"]), ("MODIFIED", "a")]
    assert [query.get("continue") for _, query in source.requests] == [None, "t", None, None]
    assert versions(source) == ["1", "2"]
    assert all(query["f"] == "s" for _, query in source.requests)
    assert source.requests[2][1]["allowWatchBookmarks"] == "true"


def test_watch_has_the_query_of_client_go():
    source, _, _ = run(page("1"), [], END)
    what, query = source.requests[1]
    assert what == "watch" and 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "1"}
    assert set(source.silences) == {150.0}


def test_managed_fields_are_removed():
    objects = []

    class Keeping(RecordingSink):
        def apply(self, kind, object_):
            objects.append(object_)

    source = Script(page("1"), [event("ADDED", "a", "2")], [])
    Reflector(source, "/x", Keeping()).run()
    assert objects[0]["metadata"] == {"name": "a", "uid": "a-1", "resourceVersion": "2"}


def test_bookmark_updates_version_without_notification():
    source, calls, _ = run(page("1"), [event("BOOKMARK", "", "9")], [])
    assert calls == ["begin_list", ("replace", [])]
    assert versions(source) == ["1", "9"]


def test_broken_stream_resumes_from_the_last_version():
    cut = [event("ADDED", "a", "2"), Unavailable("cut")]
    source, calls, warnings = run(page("1"), cut, [])
    assert calls[-1] == ("ADDED", "a")
    assert versions(source) == ["1", "2"]
    assert "cut" in warnings[0]
    assert len(source.waits) == 1


@pytest.mark.parametrize(
    "expired", [Gone(410, "", "", "", ""), [{"type": "ERROR", "object": {"code": 410}}]]
)
def test_expired_watch_relists(expired):
    source, calls, _ = run(page("1", "a"), expired, page("7", "b"), [])
    assert calls == ["begin_list", ("replace", ["a"]), "begin_list", ("replace", ["b"])]
    assert versions(source) == ["1", "7"]


def test_expired_list_starts_again():
    _, calls, _ = run(page("1", "a", more="t"), Gone(410, "", "", "", ""), page("2", "a", "b"), [])
    assert calls == ["begin_list", "begin_list", ("replace", ["a", "b"])]


def test_server_that_lost_its_data_is_relisted():
    cut = [event("ADDED", "a", "90"), Unavailable("cut")]
    source, calls, _ = run(page("80"), cut, page("4"), [], is_same=lambda: False)
    assert calls[-2:] == ["begin_list", ("replace", [])]
    assert versions(source) == ["80", "4"]


def test_loss_is_noticed_after_a_stream_that_lasted_long():
    source = Script(page("80"), [event("ADDED", "a", "90"), Unavailable("cut")], page("4"), [])
    source.lasts = 121.0
    sink = RecordingSink()
    Reflector(source, "/x", sink, is_same=lambda: False, monotonic=lambda: source.now).run()
    assert sink.calls[-2:] == ["begin_list", ("replace", [])]
    assert versions(source) == ["80", "4"]


def test_failed_list_after_a_loss_is_repeated():
    answers = iter([False])
    cut = [event("ADDED", "a", "90"), Unavailable("cut")]
    source, _, _ = run(
        page("80"), cut, Unavailable("down"), page("4"), [], is_same=lambda: next(answers)
    )
    assert versions(source) == ["80", "4"]


def test_other_error_event_does_not_relist():
    error = {"type": "ERROR", "object": {"code": 500, "message": "m"}}
    source, _, warnings = run(page("1"), [error], [])
    assert versions(source) == ["1", "1"]
    assert warnings == ["cannot watch /x, retrying: WATCH /x: m"]


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b'{"type":"ERROR","object":5}', b"\xff", b"[" * 100_000]
)
def test_malformed_event_is_a_broken_stream(line):
    source, _, warnings = run(page("1"), [line], [])
    assert versions(source) == ["1", "1"]
    assert "malformed event" in warnings[0]


@pytest.mark.parametrize(
    "object_",
    [
        None,
        {},
        {"metadata": 5},
        {"metadata": {"name": "x", "uid": 7, "resourceVersion": "2"}},
        {**thing("x"), "spec": "text"},
        {**thing("x"), "spec": {"nodeName": ["n"]}},
        {**thing("x"), "status": "text"},
        {**thing("x"), "status": {"conditions": ["text"]}},
        {**thing("x"), "status": {"containerStatuses": 5}},
        {"metadata": {**thing("x")["metadata"], "annotations": {"a": 5}}},
        {"metadata": {**thing("x")["metadata"], "labels": ["a"]}},
        {"metadata": {**thing("x")["metadata"], "ownerReferences": [None]}},
    ],
)
def test_malformed_object_does_not_affect_others(object_):
    listed = {"metadata": {"resourceVersion": "1"}, "items": [object_, thing("a")]}
    bad = {"type": "ADDED", "object": object_}
    source, calls, warnings = run(listed, [bad, event("ADDED", "b", "3")], [])
    assert calls == ["begin_list", ("replace", ["a"]), ("ADDED", "b")]
    assert versions(source) == ["1", "3"]
    assert len(warnings) == 2 and all(" skipped: " in each for each in warnings)


def test_event_of_unknown_type_is_ignored():
    _, calls, warnings = run(page("1"), [event("ODD", "a", "2"), event("ADDED", "b", "3")], [])
    assert calls == ["begin_list", ("replace", []), ("ADDED", "b")]
    assert warnings == []


@pytest.mark.parametrize("page_", [{"items": "x"}, {"items": [], "metadata": 5}])
def test_malformed_list_is_retried(page_):
    _, calls, warnings = run(page_, page("1", "a"), [])
    assert calls == ["begin_list", "begin_list", ("replace", ["a"])]
    assert "response is not a list" in warnings[0]


def test_endless_list_is_started_again():
    _, calls, warnings = run(page("1", "a", more="t"), page("1", "a", more="t"), page("2", "b"), [])
    assert calls[-1] == ("replace", ["b"])
    assert "the server repeats a page" in warnings[0]


def test_event_is_repeated_if_the_sink_is_unavailable():
    class Broken(RecordingSink):
        def apply(self, kind, object_):
            raise Unavailable("not now")

    source = Script(page("1"), [event("ADDED", "a", "2")], [])
    Reflector(source, "/x", Broken()).run()
    assert versions(source) == ["1", "1"]


def test_bug_in_the_sink_relists():
    class Broken(RecordingSink):
        def apply(self, kind, object_):
            raise KeyError("spec")

    source, warnings = Script(page("1"), [event("ADDED", "a", "2")], page("5"), []), []
    Reflector(source, "/x", Broken(), warn=warnings.append).run()
    assert versions(source) == ["1", "5"]
    assert warnings == ["/x: unexpected KeyError: 'spec' (a bug)"]


def test_failures_back_off_exponentially():
    errors = [Unavailable("down")] * 8
    source, _, _ = run(*errors, END, [])
    assert len(source.waits) == 8
    longest = [1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert all(most / 2 <= wait <= most for wait, most in zip(source.waits, longest, strict=True))


@pytest.mark.parametrize(("lasts", "longest"), [(120.0, 12.8), (121.0, 0.8)])
def test_backoff_starts_again_after_two_minutes_without_failure(lasts, longest):
    errors = [Unavailable("down")] * 3
    source = Script(*errors, page("1"), [Unavailable("cut")], END)
    source.lasts = lasts
    Reflector(source, "/x", RecordingSink(), monotonic=lambda: source.now).run()
    assert longest / 2 <= source.waits[3] <= longest


@pytest.mark.parametrize(("lasts", "waits"), [(0.9, 2), (1.0, 0)])
def test_stream_shorter_than_a_second_is_a_failure(lasts, waits):
    source = Script(page("1"), [], [], END)
    source.lasts = lasts
    Reflector(source, "/x", RecordingSink(), monotonic=lambda: source.now).run()
    assert len(source.waits) == waits


def test_retry_after_is_honoured():
    source, _, _ = run(Unavailable("busy", 77.0), END, [])
    assert source.waits == [77.0]


def test_failing_list_warns_and_retries():
    source, _, warnings = run(NotFound(404, "", "no", "GET", "/x"), END, [])
    assert warnings == ["cannot watch /x, retrying: GET /x: 404 : no"]
    assert len(source.waits) == 1


def test_streams_that_end_at_once_back_off():
    source, _, _ = run(page("1"), [], [], [], monotonic=lambda: 0.0)
    assert len(source.waits) == 3


POD = b'{"type":"ADDED","object":{"metadata":{"labels":{%b}},"spec":{"nodeName":"%b"}}}'


def test_pods_of_other_nodes_are_filtered_out():
    wants = pods_on({b"mine"})
    assert wants(POD % (b"", b"mine"))
    assert not wants(POD % (b"", b"theirs"))
    assert not wants(POD % (b"", b"mine-too"))


def test_label_with_the_same_name_does_not_hide_a_pod():
    wants = pods_on({b"mine"})
    assert wants(POD % (b'"nodeName":"theirs"', b"mine"))


def test_events_without_a_node_name_pass():
    assert pods_on(set())(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}')
