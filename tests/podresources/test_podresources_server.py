"""PodResourcesServer over a real socket: calls, errors, start, stop and socket paths."""

from __future__ import annotations

import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from podresources import (
    Allocatable,
    Container,
    ContainerDevices,
    MemorySource,
    NotServing,
    Pod,
    PodResourcesClient,
    PodResourcesServer,
    RateLimited,
    ServeError,
    SocketInUse,
    SocketNotFound,
    SocketPathError,
)
from protos import podresources_v1 as v1
from protos import podresources_v1_grpc as v1_grpc
from protos import podresources_v1alpha1 as v1alpha1
from protos import podresources_v1alpha1_grpc as v1alpha1_grpc

GPU = "vendor.com/gpu"


def pod(name: str, *ids: str) -> Pod:
    devices = tuple(ContainerDevices(GPU, (id_,), (0,)) for id_ in ids)
    return Pod(name, "default", (Container("c", devices),))


def server_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("podresources")]


def make_stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))


def test_round_trip_over_socket(serve, client):
    pods = (pod("a", "0", "1"), pod("b"))
    allocatable = Allocatable((ContainerDevices(GPU, ("0",), (1,)),), cpu_ids=(4,))
    serve(MemorySource(pods, allocatable))
    assert client.list() == pods
    assert client.get("a", "default") == pods[0]
    assert client.get_allocatable() == allocatable
    assert [p.name for p in client.list_v1alpha1()] == ["a", "b"]


def test_generated_stubs_of_both_versions_are_served(serve, socket_path):
    serve(MemorySource([pod("a", "0")]))
    with grpc.insecure_channel(f"unix:{socket_path}") as channel:
        stub = v1_grpc.PodResourcesListerStub(channel)
        listed = stub.List(v1.ListPodResourcesRequest(), timeout=10)
        assert listed.pod_resources[0].containers[0].devices[0].topology.nodes[0].ID == 0
        request = v1.GetPodResourcesRequest(pod_name="x", pod_namespace="y")
        with pytest.raises(grpc.RpcError) as caught:
            stub.Get(request, timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "pod x in namespace y not found"
        alpha = v1alpha1_grpc.PodResourcesListerStub(channel)
        (old,) = alpha.List(v1alpha1.ListPodResourcesRequest(), timeout=10).pod_resources
        assert old.containers[0].devices[0].device_ids == ["0"]


def test_rate_limit_over_socket(serve, client):
    now = [0.0]
    server = serve(qps=100, burst=10, clock=lambda: now[0])
    for _ in range(5):
        client.list()
        client.list_v1alpha1()
    with pytest.raises(RateLimited, match="rejected by rate limit"):
        client.get_allocatable()
    now[0] += 0.01
    client.get_allocatable()
    with pytest.raises(RateLimited):
        client.list()
    total = "kubelet_pod_resources_endpoint_requests_total"
    assert server.counters()[total, "v1"] == 6
    assert server.counters()[total, "v1alpha1"] == 5


class Broken(MemorySource):
    def pods(self):
        raise RuntimeError("state is gone")


def test_errors_of_source_reach_on_error_and_client(serve, client):
    errors = []
    serve(Broken(), on_error=errors.append)
    with pytest.raises(Exception, match=r"INTERNAL.*state is gone") as caught:
        client.list()
    assert caught.value.code == "INTERNAL"
    assert [str(error) for error in errors] == ["state is gone"]


def test_errors_without_on_error_are_logged(serve, client, caplog):
    serve(Broken())
    with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="state is gone"):
        client.list()
    assert "RuntimeError: state is gone" in caplog.text


def test_stop_removes_socket_and_threads(socket_path):
    server = PodResourcesServer(MemorySource(), socket_path)
    with server, PodResourcesClient(socket_path) as client:
        client.list()
        assert server_threads()
    assert list(socket_path.parent.iterdir()) == []
    assert server_threads() == []
    server.stop()


def test_stop_waits_for_call_in_progress(serve, socket_path):
    # If a call is cut off, gRPC writes a line to the client's standard error.
    called, go = threading.Event(), threading.Event()

    class Slow(MemorySource):
        def pods(self):
            called.set()
            go.wait(10)
            return super().pods()

    server = serve(Slow([pod("a", "0")]))
    with PodResourcesClient(socket_path) as client, ThreadPoolExecutor(1) as pool:
        listed = pool.submit(client.list)
        assert called.wait(10)
        threading.Timer(0.02, go.set).start()
        server.stop(grace=10)
        assert listed.result(10) == (pod("a", "0"),)


def test_stopped_server_can_start_again(socket_path):
    source = MemorySource([pod("a", "0")])
    server = PodResourcesServer(source, socket_path, qps=None)
    with PodResourcesClient(socket_path) as client:
        for _ in range(3):
            server.start()
            listed = client.list()
            server.stop()
            with pytest.raises((SocketNotFound, NotServing)):
                client.list()
            assert listed == source.pods()
    assert server.counters()["kubelet_pod_resources_endpoint_requests_list", "v1"] == 3


def test_second_start_is_rejected(serve):
    server = serve()
    with pytest.raises(ServeError, match=r"^already serving"):
        server.start()


def test_directory_has_kubelets_mode(socket_path):
    inner = socket_path.parent / "pod-resources" / "kubelet.sock"
    with PodResourcesServer(MemorySource(), inner):
        assert inner.parent.stat().st_mode & 0o777 == 0o750
        assert list(inner.parent.iterdir()) == [inner]


def test_stale_socket_is_replaced(serve, client, socket_path):
    make_stale_socket(socket_path)
    serve(MemorySource([pod("a", "0")]))
    assert client.list() == (pod("a", "0"),)


def test_socket_of_running_server_is_kept(serve, client, socket_path):
    serve(MemorySource([pod("first", "0")]))
    with pytest.raises(SocketInUse, match=str(socket_path)):
        PodResourcesServer(MemorySource(), socket_path).start()
    assert client.list() == (pod("first", "0"),)
    assert list(socket_path.parent.iterdir()) == [socket_path]


def test_busy_server_counts_as_running(socket_path):
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(socket_path))
        busy.listen(0)
        waiting.connect(str(socket_path))  # fills the backlog: the next connect would block
        with pytest.raises(SocketInUse):
            PodResourcesServer(MemorySource(), socket_path).start()


def test_one_of_concurrent_starts_succeeds(socket_path):
    servers = [PodResourcesServer(MemorySource(), socket_path) for _ in range(8)]
    together = threading.Barrier(len(servers))

    def start(server: PodResourcesServer) -> bool:
        together.wait(timeout=30)
        try:
            server.start()
        except SocketInUse:
            return False
        return True

    with ThreadPoolExecutor(len(servers)) as pool:
        started = list(pool.map(start, servers))
    with PodResourcesClient(socket_path) as client:
        assert client.list() == ()
    for server in servers:
        server.stop()
    assert sum(started) == 1
    assert list(socket_path.parent.iterdir()) == []


def test_late_stop_keeps_socket_of_next_server(serve, client, socket_path):
    first = PodResourcesServer(MemorySource(), socket_path)
    first.start()
    # Without the file, the second server cannot notice that the first one still runs.
    socket_path.unlink()
    serve(MemorySource([pod("second", "0")]))
    first.stop()
    assert client.list() == (pod("second", "0"),)


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_other_file_is_kept(socket_path, kind):
    match kind:
        case "file":
            socket_path.write_text("precious")
        case "directory":
            socket_path.mkdir()
        case "link":
            make_stale_socket(socket_path.with_name("other"))
            socket_path.symlink_to("other")
    with pytest.raises(ServeError, match="is not a socket"):
        PodResourcesServer(MemorySource(), socket_path).start()
    assert os.path.lexists(socket_path)


def test_relative_path_is_rejected():
    with pytest.raises(SocketPathError, match=r"'some/kubelet\.sock' is relative"):
        PodResourcesServer(MemorySource(), "some/kubelet.sock").start()


def path_of(length: int, directory: Path) -> Path:
    padding = length - len(str(directory)) - len("//kubelet.sock")
    return directory / ("d" * padding) / "kubelet.sock"


def test_path_of_107_bytes_works(socket_path):
    longest = path_of(107, socket_path.parent)
    server = PodResourcesServer(MemorySource(), longest)
    with server, PodResourcesClient(longest) as client:
        assert client.list() == ()


def test_path_of_108_bytes_is_rejected(socket_path):
    too_long = path_of(108, socket_path.parent)
    with pytest.raises(SocketPathError, match="has 108 bytes, the kernel allows 107"):
        PodResourcesServer(MemorySource(), too_long).start()
    assert not too_long.parent.exists()
    with pytest.raises(SocketPathError, match="has 108 bytes, the kernel allows 107"):
        PodResourcesClient(too_long)


def test_path_is_measured_in_bytes(socket_path):
    path = socket_path.parent / ("é" * 50) / "kubelet.sock"
    with pytest.raises(SocketPathError, match="bytes"):
        PodResourcesServer(MemorySource(), path).start()


@pytest.mark.parametrize("name", ["a b%20#c?", "käfig", "a:b"])
def test_special_characters_in_path(socket_path, name):
    path = socket_path.parent / name / "kubelet.sock"
    with PodResourcesServer(MemorySource(), path), PodResourcesClient(path) as client:
        assert client.list() == ()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("directory", ["/proc/self", "/proc/none/such"])
def test_read_only_directory(directory):
    with pytest.raises(ServeError, match=directory):
        PodResourcesServer(MemorySource(), f"{directory}/kubelet.sock").start()
    assert server_threads() == []


def test_file_in_place_of_directory(socket_path):
    socket_path.write_text("")
    with pytest.raises(ServeError, match=r"^cannot use directory"):
        PodResourcesServer(MemorySource(), socket_path / "kubelet.sock").start()


def test_many_clients_while_source_changes(serve, socket_path):
    source = MemorySource([pod("a", "0"), pod("b", "0")])
    serve(source)
    turns, readers = 60, 3
    latest = [0]

    def read(_: int) -> list[str]:
        wrong = []
        with PodResourcesClient(socket_path) as client:
            for _ in range(turns):
                before = latest[0]
                seen = {p.containers[0].devices[0].device_ids for p in client.list()}
                if len(seen) != 1 or int(seen.pop()[0]) < before:
                    wrong.append(f"after {before}: {seen}")
        return wrong

    with ThreadPoolExecutor(readers) as pool:
        results = [pool.submit(read, n) for n in range(readers)]
        while not all(result.done() for result in results):
            n = str(latest[0] + 1)
            source.replace(pods=[pod("a", n), pod("b", n)])
            latest[0] += 1
    assert [result.result() for result in results] == [[]] * readers
    assert latest[0] > turns


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        (5, "invalid pods 5: expected a tuple or list of Pod"),
        (["train"], "invalid pods .*: expected a tuple or list of Pod"),
        (
            [Pod("p", "ns", Container("main"))],
            "invalid containers C.*: expected a tuple",
        ),
        ([Pod("p", "ns", (Container("m", ContainerDevices("v/gpu", ("0",))),))], "invalid devices"),
        (
            [Pod("p", "ns", (Container("m", (ContainerDevices("v/gpu", "gpu-0"),)),))],
            r"invalid device_ids 'gpu-0': use \('gpu-0',\)",
        ),
    ],
)
def test_memory_source_rejects_invalid_values(pods: Any, message: str) -> None:
    source = MemorySource()
    with pytest.raises(TypeError, match="^" + message):
        MemorySource(pods)
    with pytest.raises(TypeError, match="^" + message):
        source.replace(pods=pods)
    with pytest.raises(TypeError, match=r"^invalid allocatable .*: expected an Allocatable"):
        source.replace(allocatable=pods)
    with pytest.raises(TypeError, match=r"^invalid device_ids"):
        source.replace(allocatable=Allocatable((ContainerDevices("v/gpu", "gpu-0"),)))
    assert (source.version(), source.pods()) == (1, ())
