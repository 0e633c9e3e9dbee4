"""The methods of the Pods API without a transport: responses, texts and codes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from podresources import Rejection, TokenBucket
from podresources.pods_api import EventType, Watcher, pod_from_bytes
from podresources.pods_api.counters import PodsCounters
from podresources.pods_api.service import PodsService
from podresources.service import RateLimit
from protos import pods_v1alpha1 as v1alpha1
from tests.podresources.pods_api.conftest import MemoryPods, pod


class Harness:
    def __init__(self, bucket: TokenBucket | None = None) -> None:
        self.source = MemoryPods("b", "a")
        self.errors: list[Exception] = []
        self.accepted: list[str] = []
        self.now = 0.0
        self.counters = PodsCounters()
        self.is_cancelled = False
        limit = RateLimit(bucket, lambda: self.now)
        self.service = PodsService(
            self.source, limit, self.errors.append, self.accepted.append, self.counters
        )

    def rejection(self, call: Callable[[], Any]) -> tuple[str, str]:
        with pytest.raises(Rejection) as caught:
            call()
        return caught.value.code, caught.value.text

    def watch(self, watcher: Watcher | None = None) -> Any:
        return self.service.watch(b"", watcher or Watcher(), lambda: self.is_cancelled)


def request_for(uid: str) -> bytes:
    return v1alpha1.GetPodRequest(podUID=uid).SerializeToString()


def events(stream: Any, count: int) -> list[tuple[str, bytes]]:
    read = [v1alpha1.WatchPodsEvent.FromString(each) for each in islice(stream, count)]
    return [(v1alpha1.EventType.Name(each.type), each.pod) for each in read]


def test_list_has_all_pods_by_uid() -> None:
    harness = Harness()
    listed = v1alpha1.ListPodsResponse.FromString(harness.service.list(b"")).pods
    assert list(listed) == [pod("a"), pod("b")]


def test_get_finds_a_pod_by_uid() -> None:
    harness = Harness()
    found = v1alpha1.GetPodResponse.FromString(harness.service.get(request_for("b"))).pod
    assert pod_from_bytes(found)["metadata"]["uid"] == "b"
    unknown = harness.rejection(lambda: harness.service.get(request_for("c")))
    assert unknown == ("NOT_FOUND", "pod with UID c not found")
    nameless = harness.rejection(lambda: harness.service.get(b""))
    assert nameless == ("NOT_FOUND", "pod with UID  not found")


def test_nothing_is_answered_before_all_pods_are_known() -> None:
    harness = Harness()
    harness.source.is_ready = False
    for call in (
        lambda: harness.service.list(b""),
        lambda: harness.service.get(request_for("a")),
        lambda: next(harness.watch()),
    ):
        assert harness.rejection(call) == ("FAILED_PRECONDITION", "Kubelet is initializing")
    assert not harness.source.watchers


def test_watch_sends_all_pods_then_the_mark_then_events() -> None:
    harness = Harness()
    stream = harness.watch()
    assert events(stream, 3) == [
        ("ADDED", pod("a")), ("ADDED", pod("b")), ("INITIAL_SYNC_COMPLETE", b""),
    ]  # fmt: skip
    harness.source.publish(EventType.MODIFIED, "b", "Failed")
    harness.source.publish(EventType.DELETED, "a")
    assert events(stream, 2) == [("MODIFIED", pod("b", "Failed")), ("DELETED", pod("a"))]


def test_events_during_the_initial_list_come_after_it() -> None:
    harness = Harness()
    stream = harness.watch()
    assert events(stream, 1) == [("ADDED", pod("a"))]
    harness.source.publish(EventType.ADDED, "c")
    assert [kind for kind, _ in events(stream, 3)] == ["ADDED", "INITIAL_SYNC_COMPLETE", "ADDED"]


def test_slow_client_gets_the_queue_and_then_the_error() -> None:
    harness = Harness()
    now = [0.0]
    stream = harness.watch(Watcher(lambda: now[0]))
    events(stream, 3)
    for number in range(101):
        now[0] = number / 100
        harness.source.publish(EventType.MODIFIED, "a", f"phase {number}")
    assert not harness.source.watchers
    assert events(stream, 100)[-1] == ("MODIFIED", pod("a", "phase 99"))
    failure = harness.rejection(lambda: next(stream))
    assert failure == ("RESOURCE_EXHAUSTED", "watch client channel closed")


def test_rate_limit_is_shared_by_list_and_get_but_not_by_watch() -> None:
    harness = Harness(TokenBucket(100, 2))
    harness.service.list(b"")
    # As in the kubelet, an unknown pod uses a token, an invalid request does not.
    harness.rejection(lambda: harness.service.get(request_for("c")))
    code, text = harness.rejection(lambda: harness.service.get(b"\xff"))
    assert code == "INTERNAL" and text.startswith("/v1alpha1.Pods/GetPod: invalid v1alpha1.GetPod")
    limited = "RESOURCE_EXHAUSTED", "rejected by rate limit"
    assert harness.rejection(lambda: harness.service.list(b"")) == limited
    assert harness.rejection(lambda: harness.service.get(request_for("a"))) == limited
    assert len(events(harness.watch(), 3)) == 3
    assert harness.accepted == ["ListPods", "GetPod", "WatchPods"]
    harness.now = 0.01
    harness.service.list(b"")


def test_errors_of_the_source_are_reported_and_sent() -> None:
    harness = Harness()
    harness.source.pods = lambda: 1 / 0  # type: ignore[method-assign]
    code, text = harness.rejection(lambda: harness.service.list(b""))
    assert (code, [type(error) for error in harness.errors]) == ("INTERNAL", [ZeroDivisionError])
    assert text == "cannot read the node's pods: ZeroDivisionError('division by zero')"
    assert harness.rejection(lambda: next(harness.watch()))[0] == "INTERNAL"


def test_calls_are_counted_by_their_status() -> None:
    harness = Harness(TokenBucket(100, 3))
    harness.service.list(b"")
    harness.service.get(request_for("a"))
    harness.rejection(lambda: harness.service.get(request_for("c")))
    harness.rejection(lambda: harness.service.list(b""))  # by the rate limit: not counted
    assert harness.counters.snapshot() == {
        ("kubelet_pod_requests_get_total", "NOT_FOUND"): 1,
        ("kubelet_pod_requests_get_total", "OK"): 1,
        ("kubelet_pod_requests_list_total", "OK"): 1,
        ("kubelet_pod_requests_total", "NOT_FOUND"): 1,
        ("kubelet_pod_requests_total", "OK"): 2,
    }


@pytest.mark.parametrize("ended_by", ["the client", "the generator", "the kubelet"])
def test_watch_is_counted_at_its_end(ended_by: str) -> None:
    harness, watcher = Harness(), Watcher()
    stream = harness.watch(watcher)
    events(stream, 3)
    assert harness.counters.snapshot() == {}
    if ended_by == "the generator":
        stream.close()
    else:
        harness.is_cancelled = ended_by == "the client"
        watcher.close()
        with contextlib.suppress(Rejection):
            assert list(stream) == []
    code = "RESOURCE_EXHAUSTED" if ended_by == "the kubelet" else "CANCELLED"
    assert harness.counters.snapshot() == {
        ("kubelet_pod_requests_total", code): 1,
        ("kubelet_pod_requests_watch_total", code): 1,
    }
