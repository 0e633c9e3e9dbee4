"""The server: whom it lets in, what it bears, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devicemanager import EventKind, RequestError, StartError, WaitTimeout
from devicemanager.control import ControlError, ControlServer, MockKubeletClient
from devicemanager.control.access import TcpAddress
from devicemanager.control.limits import WORKERS, Budget, max_connections
from devicemanager.control.transport import transport_to
from devicemanager.testing import pod_manifest
from tests.helpers import Counted

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
    """All that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def get(path, *headers, close=True):
    lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, *(["Connection: close"] * close)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def asked(server, path, *headers):
    """Status and problem of a request over TCP."""
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(get(path, *headers).replace(b"Host: x\r\n", b""))
        head, _, body = said(client).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), json.loads(body)


# -- who is let in ----------------------------------------------------------------------


@pytest.fixture
def tcp(mock_kubelet):
    with ControlServer(mock_kubelet, tcp="127.0.0.1:0") as server:
        yield server


def test_only_its_user_may_connect_or_read_the_token(tcp):
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
    with pytest.raises(RequestError, match="served already"):
        tcp.start()


def test_over_tcp_token_host_and_origin_have_to_fit(tcp):
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
        ([host], 401, "the token is in control.token"),
        ([host, token + "x"], 401, "the token is not that of control.token in the root"),
        ([host, token.replace("Bearer", "Basic")], 401, "the token is in control.token"),
        ([f"Host: evil.example:{port}", token], 403, "the header Host has to be 127.0.0.1"),
        (["Host: 127.0.0.1", token], 403, "the header Host has to be 127.0.0.1"),
        ([host, token, "Origin: http://evil.example"], 403, "requests of web pages are rejected"),
        ([host, token, "Origin: null"], 403, "requests of web pages are rejected"),
    ):
        found, head, problem = asked(tcp, "/v1/node", *headers)
        assert (found, problem["status"]) == (status, status), headers
        assert text in problem["detail"]
        assert ("www-authenticate: Bearer" in head) is (status == 401)
    # What the document says is nobody's business without the token either.
    assert asked(tcp, "/openapi.json", host)[0] == 401


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("8001", "is no address with a port"),
        ("127.0.0.1:x", "is no address with a port"),
        ("127.0.0.1:70000", "is no address with a port"),
        ("example.com:80", "is no IP address"),
        (":80", "is no IP address"),
        ("::1:80", "stands in brackets"),
        ("[127.0.0.1]:80", "stands in brackets"),
    ],
)
def test_addresses_that_are_none(mock_kubelet, text, problem):
    with pytest.raises(ValueError, match=problem):
        ControlServer(mock_kubelet, tcp=text)


def test_other_hosts_are_let_in_only_when_that_is_said(mock_kubelet):
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        with pytest.raises(ValueError, match="can be reached from other hosts"):
            ControlServer(mock_kubelet, tcp=address)
    with ControlServer(mock_kubelet, tcp="0.0.0.0:0", allow_remote=True) as server:
        port = server.address.rpartition(":")[2]
        token = server.token_path.read_text().strip()
        assert MockKubeletClient(f"http://127.0.0.1:{port}", token=token).is_serving
        bearer = f"Authorization: Bearer {token}"
        assert asked(server, "/v1/node", bearer, f"Host: evil.example:{port}")[0] == 403
    assert str(TcpAddress.parse("[::1]:80")) == "[::1]:80"
    assert TcpAddress.parse("localhost:80") == TcpAddress("127.0.0.1", 80)
    with pytest.raises(StartError, match="cannot listen on 192"):
        ControlServer(mock_kubelet, tcp="192.0.2.1:0", allow_remote=True).start()


def test_one_server_for_each_kubelet(mock_kubelet, server, make_mock_kubelet):
    with pytest.raises(StartError, match="another server is listening on"):
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


# -- what it bears ------------------------------------------------------------------------


def test_bodies_are_bounded_in_size_time_and_number(client, server, monkeypatch):
    with pytest.raises(ControlError, match="the body has more than 4194304 bytes"):
        client.ask("admitPod", body=b"x" * (5 << 20))
    with connected(server) as slow:
        monkeypatch.setattr("devicemanager.control.receiving.BODY_SECONDS", 0.05)
        slow.sendall(b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        answer = said(slow)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not come within 0.05 s" in answer


def test_all_clients_together_are_bounded(client, server, monkeypatch):
    monkeypatch.setattr("devicemanager.control.limits._UNDER_WAY", 10)
    budget = Budget(10)
    with budget.account() as account:
        account.take(9)
        with pytest.raises(Exception, match="try again"), budget.account() as other:
            other.take(2)
    assert budget.used == 0


def test_who_neither_asks_nor_reads_is_let_go(server, monkeypatch, simulated_plugin):
    for name in ("IDLE_SECONDS", "STALLED_SECONDS"):
        monkeypatch.setattr(f"devicemanager.control.connection.{name}", 0.05)
    with connected(server) as silent:
        assert said(silent) == b""
    with connected(server) as half:
        half.sendall(b"GET /v1/node HT")
        assert said(half) == b""
    with connected(server) as deaf:
        deaf.sendall(get("/openapi.json", close=False) * 200)
        until(lambda: state_of(server).connections)
        until(lambda: not state_of(server).connections)


def state_of(server):
    """uvicorn's own account of ``connections`` and of ``tasks``, requests under way. A client
    cannot tell whether the server still has one."""
    return server._server.server_state


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_connections_are_bounded(mock_kubelet, monkeypatch):
    monkeypatch.setattr("devicemanager.control.serving.max_connections", lambda: 4)
    with ControlServer(mock_kubelet) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(4)]
        with connected(server) as fifth:
            assert said(fifth) == b""
        clients.pop().close()
        until(lambda: len(state_of(server).connections) == 3)
        assert MockKubeletClient(server.socket_path).is_serving
    assert 4 <= max_connections() <= 2048


def test_what_is_no_http(server):
    with connected(server) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert said(client).startswith(b"HTTP/1.1 400 ")
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (1 << 17))
        assert b"HTTP/1.1 400 " in said(client)


def test_waits_and_streams_hold_no_threads(client, server, mock_kubelet, simulated_plugin):
    before = threading.active_count()
    with ThreadPoolExecutor(60) as pool, contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connected(server)).sendall(get("/v1/events?follow=true"))
        waits = [pool.submit(client.wait_for_resource, GPU, 1) for _ in range(60)]
        until(lambda: len(state_of(server).tasks) >= 120)
        ours = threading.active_count() - before - 60
        assert ours <= WORKERS
        # Nobody stands in the way of an admission.
        assert client.admit(pod_manifest("a", {}, uid="a")).admitted
        simulated_plugin(GPU, 1)
        assert [wait.result() for wait in waits] == [None] * 60


def test_a_stop_ends_waits_and_streams(mock_kubelet):
    server = ControlServer(mock_kubelet).start()
    client = MockKubeletClient(server.socket_path)
    follow = client.events.follow(0)
    assert next(follow).kind is EventKind.STARTED
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(client.wait_for_resource, GPU, timeout=600)
        until(lambda: len(state_of(server).tasks) >= 2)
        server.stop()
        assert list(follow) == []
        with pytest.raises((WaitTimeout, ControlError)):
            wait.result(20)
    assert mock_kubelet.is_serving


def test_clients_leave_nothing_behind(mock_kubelet, monkeypatch):
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
    until(lambda: not state_of(server).tasks)
    before = descriptors()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(100)))
    until(lambda: not state_of(server).connections)
    until(lambda: not state_of(server).tasks)
    assert descriptors() <= before
    threads = [each.name for each in threading.enumerate() if "AnyIO" in each.name]
    assert len(threads) <= WORKERS


# -- streams ------------------------------------------------------------------------------


def lines(raw, path):
    return [json.loads(line) for line in raw.ask("GET", path).body.splitlines()]


def test_events_are_resumed_and_what_is_forgotten_is_counted(client, raw, mock_kubelet):
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


def test_who_does_not_read_a_long_line_has_a_piece_of_it_only(server, mock_kubelet):
    """The line is in memory once for all who read it, not in a buffer of each."""
    text = "x" * (4 << 20)
    mock_kubelet.events.publish(EventKind.DEVICES_UPDATED, "long", text=text)
    with connected(server) as slow:
        slow.sendall(get("/v1/events?kind=devices-updated"))
        until(lambda: [each for each in state_of(server).connections if each.flow.write_paused])
        (connection,) = state_of(server).connections
        assert connection.transport.get_write_buffer_size() < 1 << 18
        assert text.encode() in re.sub(rb"\r\n[0-9a-f]+\r\n", b"", said(slow))


def test_readers_see_everything_once(client, mock_kubelet):
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


def test_what_json_does_not_know_is_text(raw, mock_kubelet):
    mock_kubelet.events.publish(
        EventKind.DEVICES_UPDATED, "x", odd=frozenset({1}), path=mock_kubelet.root
    )
    (event,) = lines(raw, "/v1/events?kind=devices-updated")
    assert event["details"] == {"odd": [1], "path": str(mock_kubelet.root)}


# -- mistakes of ours ---------------------------------------------------------------------


def test_a_mistake_of_ours_is_an_event_and_an_answer(client, mock_kubelet, monkeypatch):
    def broken():
        raise LookupError("a\nb")

    monkeypatch.setattr(mock_kubelet, "plugins", broken)
    with pytest.raises(ControlError, match=r"unexpected LookupError: a b \(a bug\)"):
        client.plugins()
    (event,) = mock_kubelet.events.recent(EventKind.SERVER_ERROR)
    assert "control API: unexpected LookupError" in event.message


def test_a_stream_that_breaks_is_not_taken_for_one_that_ends(client, mock_kubelet, monkeypatch):
    def broken(*_, **__):
        raise LookupError("x")

    monkeypatch.setattr("devicemanager.control.convert.event", broken)
    with pytest.raises(ControlError, match="cannot be asked"):
        client.events.recent()
    assert mock_kubelet.events.recent(EventKind.SERVER_ERROR)


def test_a_server_that_is_not_ours(tmp_path):
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
        with pytest.raises(ControlError, match="with status 200 is not what the control API"):
            client.node()
        with pytest.raises(ControlError, match=f"what answers on {path} is no control API"):
            client.node()
        with pytest.raises(ControlError, match="cannot be asked"):
            client.node()
        thread.join()
        with pytest.raises(ControlError, match=r"no answer from .* in time"):
            MockKubeletClient(path, timeout=0.01).node()


def test_addresses_of_servers(tmp_path):
    assert transport_to(tmp_path).address == str(tmp_path / "control.sock")
    assert transport_to(tmp_path / "s").address == str(tmp_path / "s")
    assert transport_to("http://127.0.0.1:1/").address == "http://127.0.0.1:1"
    for text in ("https://x", "http://", "http://x:y", "http://x/y", "ftp://x"):
        with pytest.raises(ValueError, match="is no control API"):
            transport_to(text)
    with pytest.raises(ControlError, match="nobody serves the control API on"):
        MockKubeletClient(tmp_path).node()
