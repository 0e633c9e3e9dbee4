"""The reflector, on a source that says what a test wants."""

import contextlib
import json

import pytest

from devicemanager.cluster.client.errors import Gone, NotFound, Unavailable
from devicemanager.cluster.client.watch import Reflector, pods_on


class Script:
    """A source whose answers are given; closes when they are used up."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.waits = []
        self.silences = []
        self.now = 0.0
        self.lasts = 5.0

    @property
    def is_closing(self):
        return not self.answers

    def wait(self, seconds):
        self.waits.append(seconds)
        return False

    def _next(self, what, query):
        self.asked.append((what, dict(query)))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def attempt(self, method, path, *, query=None):
        return self._next("list", query)

    @contextlib.contextmanager
    def stream(self, path, query, *, silence):
        self.silences.append(silence)
        lines = self._next("watch", query)
        self.now += self.lasts

        def said():
            for line in lines:
                if isinstance(line, Exception):
                    raise line
                yield line if isinstance(line, bytes) else json.dumps(line).encode()

        yield said()


class Told:
    def __init__(self):
        self.calls = []

    def listing(self):
        self.calls.append("listing")

    def listed(self, objects):
        self.calls.append(("listed", [each["metadata"]["name"] for each in objects]))

    def seen(self, kind, object_):
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


def run(*answers, **options):
    source, told, said = Script(*answers), Told(), []
    options = {"warn": said.append, "monotonic": lambda: source.now, **options}
    Reflector(source, "/x", told, **options).run()
    return source, told.calls, said


def versions(source):
    return [query.get("resourceVersion") for what, query in source.asked if what == "watch"]


def test_list_by_pages_then_watch():
    source, calls, _ = run(
        page("1", "a", more="t"),
        page("1", "b"),
        [event("MODIFIED", "a", "2")],
        [],
        query={"f": "s"},
    )
    assert calls == ["listing", ("listed", ["a", "b"]), ("MODIFIED", "a")]
    assert [query.get("continue") for _, query in source.asked] == [None, "t", None, None]
    assert versions(source) == ["1", "2"]
    assert all(query["f"] == "s" for _, query in source.asked)
    assert source.asked[2][1]["allowWatchBookmarks"] == "true"


def test_a_watch_is_asked_for_as_client_go_does():
    source, _, _ = run(page("1"), [], END)
    what, query = source.asked[1]
    assert what == "watch" and 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "1"}
    assert set(source.silences) == {150.0}


def test_nobody_reads_who_manages_which_field():
    told = []

    class Keeping(Told):
        def seen(self, kind, object_):
            told.append(object_)

    source = Script(page("1"), [event("ADDED", "a", "2")], [])
    Reflector(source, "/x", Keeping()).run()
    assert told[0]["metadata"] == {"name": "a", "uid": "a-1", "resourceVersion": "2"}


def test_a_bookmark_moves_the_version_and_tells_nobody():
    source, calls, _ = run(page("1"), [event("BOOKMARK", "", "9")], [])
    assert calls == ["listing", ("listed", [])]
    assert versions(source) == ["1", "9"]


def test_a_stream_that_breaks_goes_on_where_it_was():
    cut = [event("ADDED", "a", "2"), Unavailable("cut")]
    source, calls, said = run(page("1"), cut, [])
    assert calls[-1] == ("ADDED", "a")
    assert versions(source) == ["1", "2"]
    assert "cut" in said[0]
    assert len(source.waits) == 1


@pytest.mark.parametrize(
    "gone", [Gone(410, "", "", "", ""), [{"type": "ERROR", "object": {"code": 410}}]]
)
def test_too_old_means_list_again(gone):
    source, calls, _ = run(page("1", "a"), gone, page("7", "b"), [])
    assert calls == ["listing", ("listed", ["a"]), "listing", ("listed", ["b"])]
    assert versions(source) == ["1", "7"]


def test_too_old_in_the_middle_of_a_list_lists_anew():
    _, calls, _ = run(page("1", "a", more="t"), Gone(410, "", "", "", ""), page("2", "a", "b"), [])
    assert calls == ["listing", "listing", ("listed", ["a", "b"])]


def test_a_server_that_was_set_up_anew_is_listed():
    cut = [event("ADDED", "a", "90"), Unavailable("cut")]
    source, calls, _ = run(page("80"), cut, page("4"), [], is_same=lambda: False)
    assert calls[-2:] == ["listing", ("listed", [])]
    assert versions(source) == ["80", "4"]


def test_another_error_event_is_no_reason_to_list():
    error = {"type": "ERROR", "object": {"code": 500, "message": "m"}}
    source, _, said = run(page("1"), [error], [])
    assert versions(source) == ["1", "1"]
    assert said == ["/x cannot be followed, trying again: WATCH /x: m"]


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b'{"type":"ERROR","object":5}', b"\xff", b"[" * 100_000]
)
def test_an_event_that_is_none_is_a_broken_stream(line):
    source, _, said = run(page("1"), [line], [])
    assert versions(source) == ["1", "1"]
    assert "an event that is none" in said[0]


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
def test_an_object_of_a_wrong_form_costs_no_other(object_):
    listed = {"metadata": {"resourceVersion": "1"}, "items": [object_, thing("a")]}
    bad = {"type": "ADDED", "object": object_}
    source, calls, said = run(listed, [bad, event("ADDED", "b", "3")], [])
    assert calls == ["listing", ("listed", ["a"]), ("ADDED", "b")]
    assert versions(source) == ["1", "3"]
    assert len(said) == 2 and all("is left out: " in each for each in said)


def test_an_event_of_an_unknown_kind_is_passed_over():
    _, calls, said = run(page("1"), [event("ODD", "a", "2"), event("ADDED", "b", "3")], [])
    assert calls == ["listing", ("listed", []), ("ADDED", "b")]
    assert said == []


@pytest.mark.parametrize("page_", [{"items": "x"}, {"items": [], "metadata": 5}])
def test_a_list_that_is_none_is_asked_for_again(page_):
    _, calls, said = run(page_, page("1", "a"), [])
    assert calls == ["listing", "listing", ("listed", ["a"])]
    assert "the answer is no list" in said[0]


def test_a_list_that_never_ends_is_given_up():
    _, calls, said = run(page("1", "a", more="t"), page("1", "a", more="t"), page("2", "b"), [])
    assert calls[-1] == ("listed", ["b"])
    assert "same page for ever" in said[0]


def test_an_event_that_could_not_be_taken_is_asked_for_again():
    class Broken(Told):
        def seen(self, kind, object_):
            raise Unavailable("not now")

    source = Script(page("1"), [event("ADDED", "a", "2")], [])
    Reflector(source, "/x", Broken()).run()
    assert versions(source) == ["1", "1"]


def test_a_bug_of_who_is_told_means_list_again():
    class Broken(Told):
        def seen(self, kind, object_):
            raise KeyError("spec")

    source, said = Script(page("1"), [event("ADDED", "a", "2")], page("5"), []), []
    Reflector(source, "/x", Broken(), warn=said.append).run()
    assert versions(source) == ["1", "5"]
    assert said == ["/x: unexpected KeyError: 'spec' (a bug)"]


def test_failures_are_waited_for_longer_and_longer():
    errors = [Unavailable("down")] * 8
    source, _, _ = run(*errors, END, [])
    assert len(source.waits) == 8
    longest = [1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert all(most / 2 <= wait <= most for wait, most in zip(source.waits, longest, strict=True))


@pytest.mark.parametrize(("lasts", "longest"), [(120.0, 12.8), (121.0, 0.8)])
def test_after_two_quiet_minutes_a_failure_is_a_first_one_again(lasts, longest):
    errors = [Unavailable("down")] * 3
    source = Script(*errors, page("1"), [Unavailable("cut")], END)
    source.lasts = lasts
    Reflector(source, "/x", Told(), monotonic=lambda: source.now).run()
    assert longest / 2 <= source.waits[3] <= longest


@pytest.mark.parametrize(("lasts", "waits"), [(0.9, 2), (1.0, 0)])
def test_a_stream_that_ends_within_a_second_was_cut(lasts, waits):
    source = Script(page("1"), [], [], END)
    source.lasts = lasts
    Reflector(source, "/x", Told(), monotonic=lambda: source.now).run()
    assert len(source.waits) == waits


def test_what_the_server_asks_for_is_waited():
    source, _, _ = run(Unavailable("busy", 77.0), END, [])
    assert source.waits == [77.0]


def test_no_right_to_list_is_said_and_tried_again():
    source, _, said = run(NotFound(404, "", "no", "GET", "/x"), END, [])
    assert said == ["/x cannot be followed, trying again: GET /x: 404 : no"]
    assert len(source.waits) == 1


def test_streams_that_end_at_once_do_not_spin():
    source, _, _ = run(page("1"), [], [], [], monotonic=lambda: 0.0)
    assert len(source.waits) == 3


POD = b'{"type":"ADDED","object":{"metadata":{"labels":{%b}},"spec":{"nodeName":"%b"}}}'


def test_other_peoples_pods_are_not_decoded():
    wants = pods_on({b"mine"})
    assert wants(POD % (b"", b"mine"))
    assert not wants(POD % (b"", b"theirs"))
    assert not wants(POD % (b"", b"mine-too"))


def test_a_label_of_that_name_hides_no_pod():
    wants = pods_on({b"mine"})
    assert wants(POD % (b'"nodeName":"theirs"', b"mine"))


def test_what_names_no_node_is_wanted():
    assert pods_on(set())(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}')
