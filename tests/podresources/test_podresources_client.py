"""PodResourcesClient against servers that work, are missing, or misbehave."""

from __future__ import annotations

import errno
import gc
import inspect
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from podresources import (
    AnswerInvalid,
    AnswerTooLarge,
    CallFailed,
    ClientClosed,
    Container,
    ContainerDevices,
    DeadlineExceeded,
    MemorySource,
    MethodUnavailable,
    NotServing,
    Pod,
    PodNotFound,
    PodResourcesClient,
    PodResourcesError,
    RateLimited,
    SocketNotFound,
)
from podresources.pods_api import PodsClient
from podresources.profile import Profile
from protos import podresources_v1 as v1

LISTER = "v1.PodResourcesLister"
GPU = "vendor.com/gpu"
Behaviour = Callable[[bytes, grpc.ServicerContext], bytes]


@pytest.fixture
def kubelet(stack, socket_path) -> Callable[..., None]:
    """Function that serves only these methods of v1, on encoded requests and responses."""

    def started(**methods: Behaviour) -> None:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        options = [("grpc.max_send_message_length", -1)]
        server = grpc.server(pool, options=options)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(behaviour)
            for name, behaviour in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(LISTER, handlers),))
        server.add_insecure_port(f"unix:{socket_path}")
        server.start()
        stack.callback(lambda: server.stop(0).wait())

    return started


def answering(body: bytes) -> Behaviour:
    return lambda request, context: body


def failing(code: grpc.StatusCode, text: str) -> Behaviour:
    return lambda request, context: context.abort(code, text)


def test_missing_socket(client, socket_path):
    with pytest.raises(SocketNotFound, match=rf"^there is no socket at {socket_path}") as caught:
        client.list()
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_stale_socket(client, socket_path):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(socket_path))
    with pytest.raises(NotServing, match=f"^no response on {socket_path}"):
        client.list()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_path_of_other_file_type_is_rejected(make: Callable[[Path], None], client, socket_path):
    make(socket_path)
    with pytest.raises(NotServing, match=f"^{socket_path} is not a socket: use the kubelet's"):
        client.list()


def test_socket_without_permission(client, socket_path, monkeypatch):
    """Either the directory cannot be searched or the socket cannot be opened."""
    reason = f"^{socket_path} cannot be reached: Permission denied; on most nodes, only root"
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(socket_path))
        with pytest.raises(NotServing, match=reason):
            raise client._connection._unavailable("connect failed: error: Permission denied")

    def denied(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(NotServing, match="^" + reason):
        client.list()


def test_server_started_later_is_found(serve, client):
    with pytest.raises(SocketNotFound):
        client.list()
    serve(MemorySource([Pod("p", "ns")]))
    assert client.list() == (Pod("p", "ns"),)


def test_failed_calls_leave_no_descriptors_or_threads(client):
    def in_use() -> tuple[int, int]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    with pytest.raises(SocketNotFound):
        client.list()
    before = in_use()
    for _ in range(50):
        with pytest.raises(SocketNotFound):
            client.list()
    after = in_use()
    assert all(new <= old + 2 for new, old in zip(after, before, strict=True)), (before, after)


def test_listener_that_never_responds(stack, socket_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_path))
        silent.listen(8)
        client = stack.enter_context(PodResourcesClient(socket_path, timeout=0.2))
        with pytest.raises(DeadlineExceeded, match=r"no response to .*List within 0\.2 s"):
            client.list()


def test_slow_kubelet(kubelet, stack, socket_path):
    release = threading.Event()
    kubelet(List=lambda request, context: release.wait(30) and b"")
    client = stack.enter_context(PodResourcesClient(socket_path, timeout=0.2))
    with pytest.raises(DeadlineExceeded):
        client.list()
    release.set()


def test_close_ends_call_in_progress(kubelet, client):
    called, release = threading.Event(), threading.Event()

    def hang(request, context):
        called.set()
        release.wait(30)
        return b""

    kubelet(List=hang)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.list)
        assert called.wait(10)
        client.close()
        assert isinstance(call.exception(timeout=10), ClientClosed)
        release.set()


def test_closed_client(client):
    client.close()
    client.close()
    with pytest.raises(ClientClosed, match="is closed"):
        client.list()


def test_older_kubelet_without_get(kubelet, client):
    kubelet(List=answering(b""))
    assert client.list() == ()
    with pytest.raises(MethodUnavailable, match=r"does not serve /v1\.PodResourcesLister/Get"):
        client.get("p", "ns")
    with pytest.raises(MethodUnavailable):
        client.get_allocatable()
    with pytest.raises(MethodUnavailable):
        client.list_v1alpha1()


def test_disabled_feature_gates(kubelet, client):
    text = "Pod Resources API GetAllocatableResources disabled"
    kubelet(
        Get=failing(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled"),
        GetAllocatableResources=failing(grpc.StatusCode.UNKNOWN, text),
    )
    with pytest.raises(MethodUnavailable, match="Get method disabled"):
        client.get("p", "ns")
    with pytest.raises(MethodUnavailable, match=text):
        client.get_allocatable()


def test_get_fails_with_feature_gate_off(serve, client):
    serve(MemorySource([Pod("p", "ns")]), profile=Profile(get_enabled=False))
    with pytest.raises(MethodUnavailable):
        client.get("p", "ns")


def test_unknown_pod(serve, client):
    serve()
    with pytest.raises(PodNotFound, match="pod p in namespace ns not found"):
        client.get("p", "ns")


def test_other_not_found_errors_differ_from_unknown_pod(kubelet, client):
    kubelet(List=failing(grpc.StatusCode.UNKNOWN, "device not found"))
    with pytest.raises(CallFailed, match="UNKNOWN: device not found") as caught:
        client.list()
    assert caught.value.code == "UNKNOWN"


def test_other_errors_keep_their_code_and_text(kubelet, client):
    kubelet(List=failing(grpc.StatusCode.PERMISSION_DENIED, "go away"))
    with pytest.raises(CallFailed, match="PERMISSION_DENIED: go away") as caught:
        client.list()
    assert caught.value.code == "PERMISSION_DENIED"
    assert isinstance(caught.value, PodResourcesError)


def test_every_grouping_of_devices_and_unknown_fields_are_read(kubelet, client):
    response = v1.ListPodResourcesResponse()
    container = response.pod_resources.add(name="p", namespace="ns").containers.add(name="c")
    container.devices.add(resource_name=GPU, device_ids=["a", "b"])
    both = [v1.NUMANode(ID=0), v1.NUMANode(ID=1)]
    container.devices.add(resource_name=GPU, device_ids=["c"], topology=v1.TopologyInfo(nodes=both))
    container.devices.add(resource_name=GPU, device_ids=["d"], topology=v1.TopologyInfo())
    later_field = b"\xfa\x01\x01x"  # field 31, a string
    kubelet(List=answering(response.SerializeToString() + later_field))
    devices = (
        ContainerDevices(GPU, ("a", "b")),
        ContainerDevices(GPU, ("c",), (0, 1)),
        ContainerDevices(GPU, ("d",)),
    )
    assert client.list() == (Pod("p", "ns", (Container("c", devices),)),)


def test_invalid_response(kubelet, client):
    kubelet(List=answering(b"\xff\xff"), Get=answering(b"\x0a\x05x"))
    with pytest.raises(AnswerInvalid, match="invalid response to /v1"):
        client.list()
    with pytest.raises(AnswerInvalid):
        client.get("p", "ns")


def listing(size: int) -> bytes:
    """Create a List response of about this size in bytes."""
    long = v1.PodResources(name="x" * 2**20)
    return v1.ListPodResourcesResponse(pod_resources=[long] * (size // 2**20)).SerializeToString()


def test_response_of_16_mib_is_accepted(kubelet, client):
    kubelet(List=answering(listing(15 * 2**20)))
    assert len(client.list()) == 15


def test_larger_response_is_rejected(kubelet, client):
    kubelet(List=answering(listing(17 * 2**20)))
    with pytest.raises(AnswerTooLarge, match="exceeds 16777216 bytes"):
        client.list()


def test_rate_limited_call_is_not_retried_by_default(kubelet, client):
    calls = []

    def reject(request, context):
        calls.append(request)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    kubelet(List=reject)
    with pytest.raises(RateLimited, match="retry later"):
        client.list()
    assert len(calls) == 1


def test_retries_wait_for_tokens(serve, socket_path):
    now, waited = [0.0], []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    serve(MemorySource([Pod("p", "ns")]), qps=10, burst=1, clock=lambda: now[0])
    with PodResourcesClient(socket_path, rate_limit_attempts=8, sleep=sleep) as client:
        assert client.list() == client.list() == (Pod("p", "ns"),)
    assert waited == pytest.approx([0.02, 0.04, 0.08])


def test_retries_end(serve, socket_path):
    waited = []
    serve(qps=1, burst=1, clock=lambda: 0.0)
    with PodResourcesClient(socket_path, rate_limit_attempts=3, sleep=waited.append) as client:
        client.list()
        with pytest.raises(RateLimited):
            client.list()
    assert len(waited) == 2


def test_other_errors_are_not_retried(kubelet, socket_path):
    waited = []
    kubelet(List=failing(grpc.StatusCode.INTERNAL, "no"))
    client = PodResourcesClient(socket_path, rate_limit_attempts=3, sleep=waited.append)
    with client, pytest.raises(CallFailed):
        client.list()
    assert waited == []


def test_endpoint_notation_and_relative_paths(serve, socket_path, monkeypatch):
    serve(MemorySource([Pod("p", "ns")]))
    monkeypatch.chdir(socket_path.parent)
    for written in (f"unix://{socket_path}", f"unix:{socket_path}", "kubelet.sock"):
        with PodResourcesClient(written) as client:
            assert client.socket_path == socket_path
            assert client.list() == (Pod("p", "ns"),)


@pytest.mark.parametrize("client", [PodResourcesClient, PodsClient])
def test_calls_end_after_ten_seconds_by_default(client: type) -> None:
    assert inspect.signature(client).parameters["timeout"].default == 10.0
