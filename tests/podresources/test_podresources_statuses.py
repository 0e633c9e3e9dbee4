"""Statuses of the server and errors of the client, without a connection; socket helpers."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import grpc
import pytest

from podresources import (
    AnswerTooLarge,
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    MemorySource,
    MethodUnavailable,
    NotServing,
    PodNotFound,
    PodResourcesClient,
    PodResourcesError,
    RateLimited,
    ServeError,
    SocketInUse,
    SocketNotFound,
    running,
    server,
    sockets,
)
from podresources.backlog import LIMIT_ANSWERS, LIMIT_BYTES, Backlog
from podresources.counters import Counters
from podresources.server import UNREAD_TEXT, _handler, _log_error
from podresources.service import Method, Rejection, Service, TokenBucket
from protos import podresources_v1_grpc as v1_grpc

# -- the server ------------------------------------------------------------------------------


class Aborted(Exception):
    """The call was aborted with a status."""


class Context:
    """The server's side of a call that ends at once, or never."""

    def __init__(self, is_over: bool = False) -> None:
        self.is_over = is_over

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Aborted(code.name, text)

    def add_callback(self, callback: object) -> bool:
        return not self.is_over

    def cancel(self) -> bool:
        raise AssertionError("a young response was cancelled")


def service(**settings: Any) -> Service:
    settings = {"limiter": None, "counters": Counters(), "on_error": pytest.fail} | settings
    return Service(MemorySource(), **settings)


def status(given: Service, path: str, backlog: Backlog | None = None) -> tuple[str, str] | bytes:
    """Call a method; return the response, or code and text of the status."""
    (method,) = [each for each in given.methods() if each.path == path]
    handler = _handler(given, method, backlog or Backlog(lambda: 0.0))
    try:
        return handler.unary_unary(b"", Context())
    except Aborted as aborted:
        return aborted.args


def test_unread_response_that_does_not_fit_is_rejected() -> None:
    backlog = Backlog(lambda: 0.0, limit_answers=1)
    assert status(service(), v1_grpc.LIST, backlog) == b""
    assert status(service(), v1_grpc.LIST, backlog) == ("RESOURCE_EXHAUSTED", UNREAD_TEXT)
    assert UNREAD_TEXT == ("too many responses wait for clients that do not read them: retry later")


def test_statuses_of_the_service() -> None:
    limited = service(limiter=TokenBucket(1, 1), clock=lambda: 0.0)
    assert status(limited, v1_grpc.LIST) == b""
    assert status(limited, v1_grpc.LIST) == ("RESOURCE_EXHAUSTED", "rejected by rate limit")

    def fails(method: Method, request: bytes) -> bytes:
        raise OSError("gone")

    errors: list[Exception] = []
    broken = service(answer=fails, on_error=errors.append)
    text = f"{v1_grpc.LIST}: cannot read the node's resources: OSError('gone')"
    assert status(broken, v1_grpc.LIST) == ("INTERNAL", text)
    assert [str(error) for error in errors] == ["gone"]

    def rejects(method: Method, request: bytes) -> bytes:
        raise Rejection("DATA_LOSS", method.kind)

    counters = Counters()
    rejecting = service(answer=rejects, counters=counters)
    assert status(rejecting, v1_grpc.LIST) == ("DATA_LOSS", "list")
    assert counters.snapshot()["kubelet_pod_resources_endpoint_errors_list", "v1"] == 1


def test_methods_have_paths_versions_and_kinds() -> None:
    found = [(each.path, each.api_version, each.kind, each.exists) for each in service().methods()]
    assert found == [
        ("/v1.PodResourcesLister/List", "v1", "list", True),
        ("/v1.PodResourcesLister/GetAllocatableResources", "v1", "get_allocatable", True),
        ("/v1.PodResourcesLister/Get", "v1", "get", True),
        ("/v1alpha1.PodResourcesLister/List", "v1alpha1", "list", True),
    ]


def test_source_errors_are_logged_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    error = OSError("gone")
    _log_error(error)
    (record,) = caplog.records
    assert record.name == "podresources.server" and record.levelname == "ERROR"
    assert record.exc_info is not None and record.exc_info[1] is error


# -- the client ------------------------------------------------------------------------------


@attrs.frozen
class Failure:
    """A failed call, as gRPC reports it."""

    status: grpc.StatusCode
    text: str | None

    def code(self) -> grpc.StatusCode:
        return self.status

    def details(self) -> str | None:
        return self.text


LIST, GET = v1_grpc.LIST, v1_grpc.GET
S = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "text", "method", "kind", "message"),
    [
        (
            S.DEADLINE_EXCEEDED,
            "",
            LIST,
            DeadlineExceeded,
            "{path}: no response to {LIST} within 2.5 s",
        ),
        (S.CANCELLED, "", LIST, ClientClosed, "the client for {path} was closed during {LIST}"),
        (
            S.RESOURCE_EXHAUSTED,
            "Received message larger than max (9 vs. 8)",
            LIST,
            AnswerTooLarge,
            "{path}: response to {LIST} exceeds 16777216 bytes: Received message larger than max "
            "(9 vs. 8)",
        ),
        (
            S.RESOURCE_EXHAUSTED,
            "rejected by rate limit",
            LIST,
            RateLimited,
            "{path}: too many calls: rejected by rate limit; retry later",
        ),
        (
            S.RESOURCE_EXHAUSTED,
            "other",
            LIST,
            CallFailed,
            "{path} failed on {LIST}: RESOURCE_EXHAUSTED: other",
        ),
        (
            S.UNIMPLEMENTED,
            "x",
            LIST,
            MethodUnavailable,
            "{path} does not serve {LIST}: use a newer kubelet",
        ),
        (
            S.UNKNOWN,
            "Get method disabled",
            LIST,
            MethodUnavailable,
            "{path} has disabled {LIST}: Get method disabled",
        ),
        (S.UNKNOWN, "pod p not found", GET, PodNotFound, "{path}: pod p not found"),
        (S.NOT_FOUND, "pod p not found", GET, PodNotFound, "{path}: pod p not found"),
        (S.UNKNOWN, "not found", LIST, CallFailed, "{path} failed on {LIST}: UNKNOWN: not found"),
        (S.NOT_FOUND, "", GET, CallFailed, "{path} failed on {GET}: NOT_FOUND: "),
        (S.INTERNAL, None, LIST, CallFailed, "{path} failed on {LIST}: INTERNAL: "),
        (
            S.UNAVAILABLE,
            "",
            LIST,
            SocketNotFound,
            "there is no socket at {path}: check that the kubelet runs and its directory is "
            "mounted",
        ),
    ],
)  # fmt: skip
def test_status_becomes_an_error_with_a_remedy(
    tmp_path: Path,
    code: grpc.StatusCode,
    text: str | None,
    method: str,
    kind: type[PodResourcesError],
    message: str,
) -> None:
    path = tmp_path / "kubelet.sock"
    with PodResourcesClient(path, timeout=2.5) as client:
        error = client._connection._translated(Failure(code, text), method)
    assert type(error) is kind
    assert str(error) == message.format(path=path, LIST=LIST, GET=GET)
    if isinstance(error, CallFailed):
        assert error.code == code.name


def test_unavailable_is_explained_by_what_is_at_the_path(directory: Path) -> None:
    path = directory / "kubelet.sock"
    with PodResourcesClient(path) as client:

        def explained(text: str) -> str:
            error = client._connection._translated(Failure(S.UNAVAILABLE, text), LIST)
            assert type(error) is NotServing
            return str(error)

        path.touch()
        assert explained("") == (
            f"{path} is not a socket: use the kubelet's pod-resources/kubelet.sock"
        )
        path.unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            assert explained("reset") == f"no response on {path}: reset"
            assert explained("connect: Permission denied (13)") == (
                f"{path} cannot be reached: Permission denied; on most nodes, only root can connect"
            )
        path.unlink()
        path.symlink_to(path)
        assert explained("") == f"{path} cannot be reached: {os.strerror(errno.ELOOP)}"
    closed = PodResourcesClient(directory / "file" / "x")
    (directory / "file").touch()
    error = closed._connection._translated(Failure(S.UNAVAILABLE, ""), LIST)
    closed.close()
    assert type(error) is SocketNotFound
    with pytest.raises(
        ClientClosed, match=f"^the client for {directory}/file/x is closed: create a new "
    ):
        closed.list()


def test_client_sends_the_request_of_each_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, bytes]] = []
    with PodResourcesClient(tmp_path / "kubelet.sock") as client:
        monkeypatch.setattr(client, "_call", lambda *call: sent.append(call) or b"")
        client.list()
        client.get_allocatable()
        client.list_v1alpha1()
        client.get("p", "ns")
        client.get("p")
    lister = "PodResourcesLister"
    assert sent == [
        (f"/v1.{lister}/List", b""),
        (f"/v1.{lister}/GetAllocatableResources", b""),
        (f"/v1alpha1.{lister}/List", b""),
        (f"/v1.{lister}/Get", b"\n\x01p\x12\x02ns"),
        (f"/v1.{lister}/Get", b"\n\x01p\x12\x07default"),
    ]


def test_client_has_the_kubelets_path_and_limit() -> None:
    with PodResourcesClient() as client:
        assert str(client.socket_path) == "/var/lib/kubelet/pod-resources/kubelet.sock"
        assert client._connection._timeout == 10.0


def test_backlog_has_room_for_64_mib_and_1024_responses() -> None:
    assert (LIMIT_BYTES, LIMIT_ANSWERS) == (67_108_864, 1024)
    backlog, over = Backlog(lambda: 0.0), Context(is_over=True)
    assert backlog.add(over, 1 << 30) and backlog.size == 0
    assert all(backlog.add(Context(), 1 << 16) for _ in range(1024))
    assert backlog.size == LIMIT_BYTES
    assert not backlog.add(Context(), 0)


# -- sockets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "most"),
    [(64, 16), (40, 10), (10, 8), (1024, 256), (1 << 20, 4096), (resource.RLIM_INFINITY, 4096)],
)
def test_server_uses_a_quarter_of_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert sockets.server_options() == [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]


def test_server_limits_calls_and_pings_clients_that_do_not_read() -> None:
    assert running._OPTIONS == (
        ("grpc.max_concurrent_streams", 64),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
    )
    text = "too many responses wait for clients that do not read them: retry later"
    assert text == server.UNREAD_TEXT
    assert (server.DEFAULT_QPS, server.DEFAULT_BURST) == (100.0, 10)


def test_connections_have_kubelets_options_and_preface() -> None:
    assert sockets.CHANNEL_OPTIONS == (
        ("grpc.default_authority", "localhost"),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    )
    assert sockets.PREFACE == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    assert sockets.FRAME_HEAD == 9
    assert sockets.is_settings(b"\0\0\0\4\0\0\0\0\0")
    assert not sockets.is_settings(b"\0\0\0\5\0\0\0\0\0")


@pytest.mark.parametrize(
    ("name", "private"),
    [
        (".abc", True),
        (".ab", False),
        (".0123456789abcdef", True),
        (".0123456789abcdef0", False),
        (".xyz", False),
        ("abc", False),
        ("a.abc", False),
    ],
)
def test_private_names_of_published_sockets(name: str, private: bool) -> None:
    assert sockets.is_private_name(name) is private


@pytest.mark.parametrize("length", [1, 4, 5, 17, 30])
def test_published_socket_has_private_name_and_mode(directory: Path, length: int) -> None:
    path = directory / ("k" * length)
    with sockets.published(path) as private:
        assert sockets.is_private_name(private.name)
        assert len(private.name) == min(max(length, 4), 17)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(private))
        server.listen()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert list(directory.iterdir()) == [path]
    assert sockets.is_alive(path)
    with pytest.raises(SocketInUse, match=f"^another server is listening on {path}: stop it or "):
        sockets.prepare(path)
    with (
        pytest.raises(
            SocketInUse, match=f"^another server has just started on {path}: stop it or use "
        ),
        sockets.published(path) as private,
    ):
        private.touch()
    server.close()
    assert not sockets.is_alive(path)
    sockets.prepare(path)
    assert not path.exists()
    assert not sockets.is_alive(path)


def test_socket_that_cannot_be_created_is_an_error(directory: Path) -> None:
    path = directory / "a.sock"
    with pytest.raises(ServeError) as raised, sockets.published(path):
        pass
    assert str(raised.value) == f"cannot create {path}: {os.strerror(errno.ENOENT)}"
    with pytest.raises(ServeError) as raised, sockets.published(directory / "no" / "a.sock"):
        pass
    assert str(raised.value) == (
        f"cannot create a socket in {directory}/no: {os.strerror(errno.ENOENT)}"
    )


@pytest.mark.parametrize(
    ("answer", "greets"),
    [
        (b"\0\0\0\4\0\0\0\0\0", True),
        (b"\0\0\0\5\0\0\0\0\0", False),
        (b"\0\0\0\4", True),
        (b"\0\0\0", False),
        (b"", False),
    ],
)
def test_greeting_needs_the_head_of_a_settings_frame(
    directory: Path, answer: bytes, greets: bool
) -> None:
    path, received = directory / "p.sock", []
    assert not sockets.greets(path, 1)

    def respond(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            received.append(peer.recv(len(sockets.PREFACE), socket.MSG_WAITALL))
            peer.sendall(answer)

    with socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor(1) as pool:
        server.bind(str(path))
        server.listen()
        responded = pool.submit(respond, server)
        assert sockets.greets(path, 10) is greets
        responded.result(10)
        assert received == [sockets.PREFACE]
        assert not sockets.greets(path, 0.001)  # without a response in time
