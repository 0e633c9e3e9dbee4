"""The server: access, limits, streams and clean-up."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import resource
import socket
import ssl
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from devicemanager import EventKind, RequestError, StartError, WaitTimeout
from devicemanager.control import ControlError, ControlServer, MockKubeletClient
from devicemanager.control.access import TcpAddress
from devicemanager.control.api_client import transport_to
from devicemanager.control.http_server import Certificate, listen_unix, max_connections
from devicemanager.control.request import Budget
from devicemanager.control.router import WORKERS
from devicemanager.testing import pod_manifest
from tests.helpers import Counted
from tests.timing import wait_until

GPU = "vendor.com/gpu"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def connected(server):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(server.socket_path))
        yield client


def said(client):
    """Everything that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def get(path, *headers, close=True):
    lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, *(["Connection: close"] * close)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def asked(server, path, *headers):
    """Status, head and problem of a request over TCP."""
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(get(path, *headers).replace(b"Host: x\r\n", b""))
        head, _, body = said(client).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), json.loads(body)


# -- access ---------------------------------------------------------------------------


@pytest.fixture
def tcp(mock_kubelet):
    with ControlServer(mock_kubelet, tcp="127.0.0.1:0") as server:
        yield server


def test_socket_and_token_are_private(tcp):
    assert mode(tcp.socket_path) == mode(tcp.token_path) == 0o600
    first = tcp.token_path.read_text()
    tcp.stop()
    assert not tcp.socket_path.exists()
    assert not tcp.token_path.exists()
    assert tcp.address is None
    tcp.stop()
    tcp.start()
    assert tcp.token_path.read_text() != first
    assert len(first.strip()) >= 32
    with pytest.raises(RequestError, match=r"^the control API is already served"):
        tcp.start()


def test_tcp_checks_token_host_and_origin(tcp):
    host, token = f"Host: {tcp.address}", f"Authorization: Bearer {tcp.token_path.read_text()}"
    token = token.strip()
    port = tcp.address.rpartition(":")[2]
    for headers in (
        [host, token],
        [f"host: localhost:{port}", token.replace("Bearer", "bearer")],
        [host, token, f"Origin: http://{tcp.address}"],
    ):
        assert asked(tcp, "/v1/node", *headers)[0] == 200
    for headers, status, text in (
        ([host], 401, "the token is in the file control.token"),
        (
            [host, token + "x"],
            401,
            "wrong token: use the token in the file control.token in the root",
        ),
        ([host, token.replace("Bearer", "Basic")], 401, "the token is in the file control.token"),
        ([f"Host: evil.example:{port}", token], 403, "expected 127.0.0.1"),
        (["Host: 127.0.0.1", token], 403, "expected 127.0.0.1"),
        (
            [host, token, "Origin: http://evil.example"],
            403,
            "requests from pages of other web sites",
        ),
        ([host, token, "Origin: null"], 403, "requests from pages of other web sites"),
    ):
        found, head, problem = asked(tcp, "/v1/node", *headers)
        assert (found, problem["status"]) == (status, status), headers
        assert text in problem["detail"]
        assert ("www-authenticate: Bearer" in head) is (status == 401)
    # The document needs the token, too.
    assert asked(tcp, "/openapi.json", host)[0] == 401


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("8001", "expected ADDRESS:PORT"),
        ("127.0.0.1:x", "expected ADDRESS:PORT"),
        ("127.0.0.1:70000", "expected ADDRESS:PORT"),
        ("example.com:80", "invalid IP address"),
        (":80", "invalid IP address"),
        ("::1:80", "use brackets around an IPv6 address"),
        ("[127.0.0.1]:80", "use brackets around an IPv6 address"),
    ],
)
def test_invalid_tcp_addresses_are_rejected(mock_kubelet, text, problem):
    with pytest.raises(ValueError, match=problem):
        ControlServer(mock_kubelet, tcp=text)


def test_remote_addresses_need_allow_remote(mock_kubelet):
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        with pytest.raises(ValueError, match=r"^other hosts can reach"):
            ControlServer(mock_kubelet, tcp=address)
    with ControlServer(mock_kubelet, tcp="0.0.0.0:0", allow_remote=True) as server:
        port = server.address.rpartition(":")[2]
        token = server.token_path.read_text().strip()
        assert MockKubeletClient(f"http://127.0.0.1:{port}", token=token).is_serving
        bearer = f"Authorization: Bearer {token}"
        assert asked(server, "/v1/node", bearer, f"Host: evil.example:{port}")[0] == 403
    assert str(TcpAddress.parse("[::1]:80")) == "[::1]:80"
    assert TcpAddress.parse("localhost:80") == TcpAddress("127.0.0.1", 80)
    with pytest.raises(StartError, match=r"^the control API cannot start: cannot listen on 192"):
        ControlServer(mock_kubelet, tcp="192.0.2.1:0", allow_remote=True).start()


def test_second_server_for_a_kubelet_is_rejected(mock_kubelet, server, make_mock_kubelet):
    with pytest.raises(
        StartError, match=r"^the control API cannot start: another server is listening on"
    ):
        ControlServer(mock_kubelet).start()
    assert MockKubeletClient(mock_kubelet.root).is_serving
    other = make_mock_kubelet()
    in_the_way = other.root / "control.sock"
    in_the_way.write_text("")
    with pytest.raises(StartError, match="is not a socket"):
        ControlServer(other).start()
    in_the_way.unlink()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(in_the_way))
    with ControlServer(other) as server_:
        assert MockKubeletClient(server_.socket_path).is_serving


def test_error_names_the_unix_socket(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    path = tmp_path / "control.sock"
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(StartError, match=f"^cannot listen on {path}: Too many open files$"),
    ):
        listen_unix(path, stack)


@pytest.mark.parametrize("missing", ["cert.pem", "key.pem"])
def test_missing_file_of_a_certificate_is_named(tmp_path, missing):
    for name in ("cert.pem", "key.pem"):
        if name != missing:
            (tmp_path / name).touch()
    certificate = Certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    with pytest.raises(ValueError) as raised:
        certificate.check()
    assert str(raised.value) == f"{tmp_path / missing}: No such file or directory"


@pytest.mark.parametrize("is_locked", [False, True])
def test_key_with_a_password_is_not_checked(tmp_path, monkeypatch, is_locked):
    class Context:
        def __init__(self, protocol):
            assert protocol is ssl.PROTOCOL_TLS_SERVER

        def load_cert_chain(self, certificate, key, password):
            assert (certificate.name, key.name) == ("cert.pem", "key.pem")
            if is_locked:
                assert password() == ""
            raise ssl.SSLError("no")

    monkeypatch.setattr(ssl, "SSLContext", Context)
    certificate = Certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    certificate.certificate.touch()
    certificate.key.touch()
    if is_locked:
        certificate.check()
    else:
        text = f"{certificate.certificate} and {certificate.key} are not a certificate and its key"
        with pytest.raises(ValueError) as raised:
            certificate.check()
        assert str(raised.value) == f"{text} in PEM format"


# -- limits ------------------------------------------------------------------------------


def test_body_size_and_time_are_limited(client, server, monkeypatch):
    with pytest.raises(ControlError, match=r"^the body is too large: the limit is 4194304 bytes"):
        client.ask("admitPod", body=b"x" * (5 << 20))
    with connected(server) as slow:
        monkeypatch.setattr("devicemanager.control.request.BODY_SECONDS", 0.05)
        slow.sendall(b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        answer = said(slow)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 0.05 s" in answer


def test_memory_of_all_clients_is_limited(client, server, monkeypatch):
    budget = Budget(10)
    with budget.account() as account:
        account.take(9)
        with (
            pytest.raises(
                Exception,
                match=r"^the memory for requests and responses in progress is used up: try again",
            ),
            budget.account() as other,
        ):
            other.take(2)
    assert budget.used == 0


def test_idle_and_stalled_clients_are_disconnected(server, monkeypatch, simulated_plugin):
    for name in ("IDLE_SECONDS", "STALLED_SECONDS"):
        monkeypatch.setattr(f"devicemanager.control.http_server.{name}", 0.05)
    with connected(server) as silent:
        assert said(silent) == b""
    with connected(server) as half:
        half.sendall(b"GET /v1/node HT")
        assert said(half) == b""
    with connected(server) as deaf:
        deaf.sendall(get("/openapi.json", close=False) * 200)
        wait_until(lambda: state_of(server).connections)
        wait_until(lambda: not state_of(server).connections)


def state_of(server):
    """Return uvicorn's own ``connections`` and ``tasks`` (requests in progress), which a client
    cannot see."""
    return server._server.server_state


def test_every_request_has_a_time_limit(server, monkeypatch):
    """Parts of the next request, which keep coming, do not extend it."""
    monkeypatch.setattr("devicemanager.control.http_server.IDLE_SECONDS", 0.1)
    with connected(server) as client:
        client.sendall(get("/v1/node", close=False) + b"G")
        end = time.monotonic() + 20
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                client.sendall(b"E")
                time.sleep(0.005)
        assert time.monotonic() < end


def few_connections(monkeypatch, number):
    monkeypatch.setattr("devicemanager.control.http_server.max_connections", lambda: number)


def open_connections(server):
    return len(state_of(server).connections)


def ended(client):
    """True if the server has closed the connection."""
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return client.recv(1) == b""
    return False


def test_new_connection_replaces_the_one_that_is_idle_for_longest(mock_kubelet, monkeypatch):
    few_connections(monkeypatch, 4)
    with ControlServer(mock_kubelet) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(4)]
        wait_until(lambda: open_connections(server) == 4)
        # The first client has sent a request later than the others have connected.
        clients[0].sendall(get("/v1/node", close=False) + b"G")
        assert clients[0].recv(1 << 16)
        assert MockKubeletClient(server.socket_path).is_serving
        assert said(clients[1]) == b""
        assert [ended(client) for client in clients] == [False, True, False, False]


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 512), (4, 4), (1 << 20, 2048), (resource.RLIM_INFINITY, 2048)]
)
def test_connections_leave_half_of_the_descriptors(monkeypatch, limit, most):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert max_connections() == most


def test_requests_in_progress_are_not_replaced(mock_kubelet, monkeypatch):
    few_connections(monkeypatch, 4)
    with ControlServer(mock_kubelet) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(4)]
        for client in clients:
            client.sendall(get("/v1/events?follow=true"))
            assert client.recv(1)
        with connected(server) as fifth:
            assert said(fifth) == b""
        clients.pop().close()
        wait_until(lambda: open_connections(server) == 3)
        assert MockKubeletClient(server.socket_path).is_serving


def test_clients_over_tcp_do_not_lock_out_the_owner(mock_kubelet, monkeypatch):
    few_connections(monkeypatch, 8)
    with (
        ControlServer(mock_kubelet, tcp="127.0.0.1:0") as server,
        contextlib.ExitStack() as stack,
    ):
        host, port = server.address.rsplit(":", 1)
        token = server.token_path.read_text().strip()
        lines = [f"Host: {server.address}", f"Authorization: Bearer {token}"]
        busy = get("/v1/events?follow=true", *lines).replace(b"Host: x\r\n", b"")
        for _ in range(4):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            client.sendall(busy)
            assert client.recv(1)
        with socket.create_connection((host, int(port)), timeout=20) as fifth:
            assert said(fifth) == b""
        # Four more connections, because each listener has its own share.
        owners = [stack.enter_context(connected(server)) for _ in range(4)]
        for owner in owners:
            owner.sendall(get("/v1/node", close=False))
            assert owner.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_invalid_http_is_rejected(server):
    with connected(server) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert said(client).startswith(b"HTTP/1.1 400 ")
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (1 << 17))
        assert b"HTTP/1.1 400 " in said(client)


def test_waits_and_streams_use_no_threads(client, server, mock_kubelet, simulated_plugin):
    before = threading.active_count()
    with ThreadPoolExecutor(60) as pool, contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connected(server)).sendall(get("/v1/events?follow=true"))
        waits = [pool.submit(client.wait_for_resource, GPU, 1) for _ in range(60)]
        wait_until(lambda: len(state_of(server).tasks) >= 120)
        ours = threading.active_count() - before - 60
        assert ours <= WORKERS
        # None of them delays an admission.
        assert client.admit(pod_manifest("a", {}, uid="a")).admitted
        simulated_plugin(GPU, 1)
        assert [wait.result() for wait in waits] == [None] * 60


@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("wait_for_event", lambda client: client.wait_for_event("stopped", timeout=600)),
        ("wait_for_call", lambda client: client.wait_for_call(rpc="Allocate", timeout=600)),
    ],
)
def test_waits_are_not_checked_after_unrelated_entries(
    client, mock_kubelet, monkeypatch, name, wait, simulated_plugin
):
    checks = []
    check = getattr(mock_kubelet, name)
    monkeypatch.setattr(
        mock_kubelet, name, lambda *words, **given: checks.append(1) or check(*words, **given)
    )
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, client)
        wait_until(lambda: checks)
        simulated_plugin(GPU, 1)
        # Longer than the time after which all waits were checked again.
        time.sleep(0.6)
        assert len(checks) == 1
        mock_kubelet.admit(pod_manifest("a", {GPU: 1}, uid="a"))
        mock_kubelet.stop()
        assert waiting.result(20)
    assert len(checks) == 2


def test_short_wait_lasts_until_its_time_is_over(client, mock_kubelet, monkeypatch):
    checks, check = [], mock_kubelet.wait_for_event
    monkeypatch.setattr(
        mock_kubelet,
        "wait_for_event",
        lambda *words, **given: checks.append(1) or check(*words, **given),
    )
    # With this clock, the time is never over.
    monkeypatch.setattr("devicemanager.control.router.time", SimpleNamespace(monotonic=float))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_for_event, "stopped", timeout=1)
        wait_until(lambda: checks)
        mock_kubelet.stop()
        assert waiting.result(20).kind is EventKind.STOPPED


def test_stop_ends_waits_and_streams(mock_kubelet):
    server = ControlServer(mock_kubelet).start()
    client = MockKubeletClient(server.socket_path)
    follow = client.events.follow(0)
    assert next(follow).kind is EventKind.STARTED
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(client.wait_for_resource, GPU, timeout=600)
        wait_until(lambda: len(state_of(server).tasks) >= 2)
        server.stop()
        assert list(follow) == []
        with pytest.raises((WaitTimeout, ControlError)):
            wait.result(20)
    assert mock_kubelet.is_serving


def test_disconnected_clients_leak_nothing(mock_kubelet, monkeypatch):
    subscribed = Counted(mock_kubelet.events.subscribe)
    monkeypatch.setattr(mock_kubelet.events, "subscribe", subscribed)
    with ControlServer(mock_kubelet) as server:
        _many_clients(server)
        assert subscribed.calls >= 1 and subscribed.open == 0


def _many_clients(server):
    client = MockKubeletClient(server.socket_path)

    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    def some(_):
        client.is_serving  # noqa: B018
        with connected(server) as follower:
            follower.sendall(get("/v1/events?follow=true"))
            follower.recv(1)

    some(0)
    wait_until(lambda: not state_of(server).tasks)
    before = descriptors()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(100)))
    wait_until(lambda: not state_of(server).connections)
    wait_until(lambda: not state_of(server).tasks)
    assert descriptors() <= before
    threads = [each.name for each in threading.enumerate() if "AnyIO" in each.name]
    assert len(threads) <= WORKERS


# -- streams ------------------------------------------------------------------------------


def lines(raw, path):
    return [json.loads(line) for line in raw.ask("GET", path).body.splitlines()]


def test_streams_resume_and_count_dropped_events(client, raw, mock_kubelet):
    for number in range(1200):
        mock_kubelet.events.publish(EventKind.DEVICES_UPDATED, f"n {number}")
    latest = mock_kubelet.events.latest
    every = lines(raw, "/v1/events")
    assert every[0]["kind"] == "events-dropped"
    assert every[0]["details"] == {"dropped": latest - 1000}
    assert every[0]["number"] == latest - 1000
    assert [each["number"] for each in every[1:]] == list(range(latest - 999, latest + 1))
    assert [each["message"] for each in lines(raw, f"/v1/events?since={latest - 2}")] == [
        *("n 1198", "n 1199")
    ]
    assert lines(raw, f"/v1/events?since={latest}") == []
    assert lines(raw, f"/v1/events?since={latest + 50}") == []
    assert lines(raw, "/v1/events?kind=started&kind=stopped")[1:] == []
    assert len(client.events.recent()) == 1000


def test_slow_reader_buffers_only_a_piece_of_a_long_line(server, mock_kubelet):
    """All readers share one copy of the line; none has it in a buffer of the server."""
    text = "x" * (4 << 20)
    mock_kubelet.events.publish(EventKind.DEVICES_UPDATED, "long", text=text)
    with connected(server) as slow:
        slow.sendall(get("/v1/events?kind=devices-updated"))
        wait_until(
            lambda: [each for each in state_of(server).connections if each.flow.write_paused]
        )
        (connection,) = state_of(server).connections
        assert connection.transport.get_write_buffer_size() < 1 << 18
        assert text.encode() in re.sub(rb"\r\n[0-9a-f]+\r\n", b"", said(slow))


def test_each_reader_gets_each_event_once(client, mock_kubelet):
    def read():
        found = []
        for event in client.events.follow(0):
            found.append(event.number)
            if event.message == "last":
                return found

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(5)]
        for number in range(300):
            mock_kubelet.events.publish(EventKind.DEVICES_UPDATED, f"n {number}")
        mock_kubelet.events.publish(EventKind.DEVICES_UPDATED, "last")
        latest = mock_kubelet.events.latest
        assert [reader.result() for reader in readers] == [list(range(1, latest + 1))] * 5


def test_values_without_json_form_become_text(raw, mock_kubelet):
    mock_kubelet.events.publish(
        EventKind.DEVICES_UPDATED, "x", odd=frozenset({1}), path=mock_kubelet.root
    )
    (event,) = lines(raw, "/v1/events?kind=devices-updated")
    assert event["details"] == {"odd": [1], "path": str(mock_kubelet.root)}


# -- unexpected errors --------------------------------------------------------------------


def test_unexpected_error_is_an_event_and_an_answer(client, mock_kubelet, monkeypatch):
    def broken():
        raise LookupError("a\nb")

    monkeypatch.setattr(mock_kubelet, "plugins", broken)
    with pytest.raises(ControlError, match=r"^unexpected LookupError: a b \(a bug\)"):
        client.plugins()
    (event,) = mock_kubelet.events.recent(EventKind.SERVER_ERROR)
    assert "control API: unexpected LookupError" in event.message


def test_broken_stream_raises_control_error(client, mock_kubelet, monkeypatch):
    def broken(*_, **__):
        raise LookupError("x")

    monkeypatch.setattr("devicemanager.control.convert.event", broken)
    with pytest.raises(ControlError, match=r"^request to the control API at .* failed"):
        client.events.recent()
    assert mock_kubelet.events.recent(EventKind.SERVER_ERROR)


def test_other_servers_raise_control_error(tmp_path):
    path = tmp_path / "s"
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"SSH-2.0\r\n", b""]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve():
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        client = MockKubeletClient(path)
        with pytest.raises(
            ControlError,
            match=r"^GET /v1/node: invalid response of the control API with status 200",
        ):
            client.node()
        with pytest.raises(
            ControlError, match=rf"^the server at {path} does not serve the control API"
        ):
            client.node()
        with pytest.raises(ControlError, match=r"^request to the control API at .* failed"):
            client.node()
        thread.join()
        with pytest.raises(ControlError, match=r"^timeout: no response from the control API at"):
            MockKubeletClient(path, timeout=0.01).node()


def test_transport_addresses(tmp_path):
    assert transport_to(tmp_path).address == str(tmp_path / "control.sock")
    assert transport_to(tmp_path / "s").address == str(tmp_path / "s")
    assert transport_to("http://127.0.0.1:1/").address == "http://127.0.0.1:1"
    for text in ("https://x", "http://", "http://x:y", "http://x/y", "ftp://x"):
        with pytest.raises(ValueError, match=r"^invalid address"):
            transport_to(text)
    with pytest.raises(ControlError, match=r"^cannot connect to the control API at"):
        MockKubeletClient(tmp_path).node()


def test_invalid_checkpoint_is_a_conflict(client, raw, mock_kubelet):
    path = mock_kubelet.checkpoint_path
    path.write_text('{"a": ')
    reply = raw.ask("GET", "/v1/checkpoint")
    problem = json.loads(reply.body)
    assert (reply.status, problem["reason"]) == (409, "conflict")
    assert problem["detail"].startswith(f"{path}: not JSON: ")
    path.unlink()
    path.mkdir()
    problem = json.loads(raw.ask("GET", "/v1/checkpoint").body)
    text = f"{path}: cannot be read: it is a directory, not a regular file; "
    assert (problem["status"], problem["detail"].startswith(text)) == (409, True)
    path.rmdir()
