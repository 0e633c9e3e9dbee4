"""Server and client of the Pods API over a real socket."""

from __future__ import annotations

import socket
import stat
import threading
import time

import grpc
import pytest

from podresources import (
    AnswerInvalid,
    ClientClosed,
    DeadlineExceeded,
    MemorySource,
    MethodUnavailable,
    NotReady,
    NotServing,
    PodNotFound,
    PodResourcesServer,
    RateLimited,
    Rejection,
    ServeError,
    SocketInUse,
    SocketNotFound,
    WatchDropped,
)
from podresources.pods_api import EventType, PodEvent, PodsClient, PodsServer
from podresources.pods_api import server as server_module
from protos import pods_v1alpha1 as v1alpha1
from protos import pods_v1alpha1_grpc as v1alpha1_grpc

SYNCED = PodEvent(EventType.INITIAL_SYNC_COMPLETE, {})


def uids(pods):
    return [pod["metadata"]["uid"] for pod in pods]


def threads():
    return [each.name for each in threading.enumerate() if each.name.startswith("pods-api")]


def eventually(condition, seconds=10.0):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def test_round_trip_over_socket(serve, client):
    serve()
    assert uids(client.list_pods()) == ["a", "b"]
    assert client.get_pod("b")["status"] == {"phase": "Running"}
    with pytest.raises(PodNotFound, match=r"pods-api\.sock: pod with UID c not found$"):
        client.get_pod("c")


def test_watch_over_socket(serve, client, source):
    serve()
    with client.watch_pods(10) as watch:
        assert [next(watch).type for _ in range(2)] == ["ADDED", "ADDED"]
        assert next(watch) == SYNCED
        source.publish(EventType.MODIFIED, "a", "Failed")
        changed = next(watch)
        assert (changed.type, changed.pod["status"]) == ("MODIFIED", {"phase": "Failed"})
    # The with block has ended the watch, on both sides.
    assert list(watch) == []
    assert eventually(lambda: not source.watchers)


def test_generated_stubs_are_served(serve, socket_path):
    serve()
    with grpc.insecure_channel(f"unix:{socket_path}") as channel:
        stub = v1alpha1_grpc.PodsStub(channel)
        assert len(stub.ListPods(v1alpha1.ListPodsRequest(), timeout=10).pods) == 2
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetPod(v1alpha1.GetPodRequest(podUID="c"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "pod with UID c not found"
        event = next(stub.WatchPods(v1alpha1.WatchPodsRequest(), timeout=10))
        assert event.type == v1alpha1.EventType.Value("ADDED")


def test_kubelet_that_starts_is_not_ready(serve, client, source):
    serve()
    source.is_ready = False
    for call in (client.list_pods, lambda: client.get_pod("a"), lambda: next(client.watch_pods(5))):
        with pytest.raises(NotReady, match=r"Kubelet is initializing: retry later$"):
            call()
    source.is_ready = True
    assert uids(client.list_pods()) == ["a", "b"]


def test_rate_limit_of_100_per_second_and_10_at_once(serve, client):
    serve(qps=100, burst=10, clock=lambda: 0.0)
    for _ in range(5):
        client.list_pods()
        client.get_pod("a")
    with pytest.raises(RateLimited, match="rejected by rate limit"):
        client.list_pods()
    with client.watch_pods(10) as watch:
        assert next(watch).type == "ADDED"


def test_client_that_does_not_read_loses_its_watch(serve, client, source):
    """Publishers do not wait, and a client that reads gets every event."""
    serve()
    slow = client.watch_pods(60)
    next(slow)
    with client.watch_pods(60) as fast:
        assert [next(fast).type for _ in range(3)][-1] == "INITIAL_SYNC_COMPLETE"
        large = "x" * 200_000  # gRPC itself buffers megabytes
        for number in range(1000):
            if len(source.watchers) == 1:
                break
            began = time.monotonic()
            source.publish(EventType.MODIFIED, "a", large + str(number))
            assert time.monotonic() - began < 5
            assert next(fast).pod["status"]["phase"].endswith(f"x{number}")
        assert len(source.watchers) == 1
    with pytest.raises(WatchDropped, match="watch client channel closed: read events faster"):
        for _ in slow:
            pass


def test_end_watches_ends_all(serve, client):
    server = serve()
    with client.watch_pods(20) as one, client.watch_pods(20) as two:
        for watch in (one, two):
            assert [next(watch).type for _ in range(3)][-1] == "INITIAL_SYNC_COMPLETE"
        assert server.end_watches() == 2
        for watch in (one, two):
            with pytest.raises(WatchDropped):
                next(watch)
    with client.watch_pods(20) as watch:
        assert next(watch).type == "ADDED"


def test_stop_ends_watches_and_threads(serve, client, socket_path):
    server = serve()
    watch = client.watch_pods(20)
    assert next(watch).type == "ADDED"
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5 and not socket_path.exists() and threads() == []
    with pytest.raises((WatchDropped, SocketNotFound)):
        list(watch)
    with pytest.raises(SocketNotFound, match="there is no socket at"):
        client.list_pods()
    server.start()
    assert uids(client.list_pods()) == ["a", "b"]
    with client.watch_pods(20) as again:
        assert next(again).type == "ADDED"


def test_more_watches_than_threads_are_rejected(serve, client, monkeypatch, source):
    monkeypatch.setattr(server_module, "MOST_WATCHES", 2)
    serve()
    watches = [client.watch_pods(20) for _ in range(2)]
    assert [next(watch).type for watch in watches] == ["ADDED", "ADDED"]
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED: 256 watches are open: end one"):
        next(client.watch_pods(20))
    assert uids(client.list_pods()) == ["a", "b"]
    watches[0].cancel()
    assert eventually(lambda: len(source.watchers) == 1)
    with client.watch_pods(20) as watch:
        assert next(watch).type == "ADDED"


def test_intercept_can_reject(serve, client):
    def reject(method):
        if method != "ListPods":
            raise Rejection("ABORTED", f"no {method}")

    serve(intercept=reject)
    assert uids(client.list_pods()) == ["a", "b"]
    with pytest.raises(Exception, match="ABORTED: no GetPod"):
        client.get_pod("a")
    with pytest.raises(Exception, match="ABORTED: no WatchPods"):
        next(client.watch_pods(10))


def test_watch_ends_after_its_timeout(serve, client):
    serve()
    with pytest.raises(DeadlineExceeded, match=r"no response to .*WatchPods within 0\.2 s"):
        list(client.watch_pods(0.2))


def test_invalid_response_is_an_error(serve, client, source):
    serve()
    source.pods = lambda: [b"\xff"]
    with pytest.raises(AnswerInvalid, match=r"invalid response to .*ListPods: not a core/v1 Pod"):
        client.list_pods()
    with pytest.raises(AnswerInvalid, match=r"invalid response to .*WatchPods"):
        next(client.watch_pods(10))


def test_closed_client_says_so(serve, client):
    serve()
    client.list_pods()
    client.close()
    for call in (client.list_pods, client.watch_pods):
        with pytest.raises(
            ClientClosed,
            match=r"the client for .*pods-api\.sock is closed: create a new PodsClient$",
        ):
            call()


def test_client_of_another_socket(directory):
    path = directory / "kubelet.sock"
    with (
        PodResourcesServer(MemorySource(), path),
        PodsClient(path) as client,
        pytest.raises(MethodUnavailable, match=r"does not serve /v1alpha1\.Pods/ListPods"),
    ):
        client.list_pods()
    path.write_text("")
    with PodsClient(path) as client, pytest.raises(NotServing, match=r"pods-api/pods-api\.sock$"):
        client.list_pods()


def test_socket_has_the_kubelets_directory_and_replaces_a_stale_one(source, directory):
    path = directory / "pods-api" / "pods-api.sock"
    with PodsServer(source, path) as server:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
        with pytest.raises(ServeError, match="already serving"):
            server.start()
        with pytest.raises(SocketInUse):
            PodsServer(source, path).start()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with PodsServer(source, path), PodsClient(path) as client:
        assert uids(client.list_pods()) == ["a", "b"]


def test_requests_of_the_client_are_messages_of_the_api(monkeypatch):
    sent = []

    class Recorder:
        def __init__(self, path, timeout, name, example):
            self.socket_path = path

        def call(self, method, request):
            sent.append((method, request))
            return b""

        def stream(self, method, request, timeout):
            sent.append((method, request, timeout))
            return FakeStream()

    class FakeStream:
        def __iter__(self):
            return iter(())

        def cancel(self):
            sent.append("cancel")

    monkeypatch.setattr("podresources.pods_api.client.Connection", Recorder)
    client = PodsClient("/x")
    assert client.list_pods() == ()
    assert client.get_pod("u") == {}
    with client.watch_pods(3.0) as watch:
        assert list(watch) == []
    assert sent == [
        (v1alpha1_grpc.LIST_PODS, b""),
        (v1alpha1_grpc.GET_POD, v1alpha1.GetPodRequest(podUID="u").SerializeToString()),
        (v1alpha1_grpc.WATCH_PODS, b"", 3.0),
        "cancel",
    ]
