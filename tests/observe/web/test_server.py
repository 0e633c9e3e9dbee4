"""The server: its parts, and which requests it accepts."""

from __future__ import annotations

import time

import pytest
from starlette.routing import Route

from devicemanager import EventKind, RequestError, StartError
from devicemanager.control import ControlServer, MockKubeletClient
from devicemanager.control.access import TcpAddress
from devicemanager.observe.web import HttpServer
from tests.observe.web.conftest import fetch


def test_health_checks_follow_the_kubelet(mock_kubelet, get):
    assert (get("/healthz").status, get("/healthz").text) == (200, "ok")
    assert get("/healthz?verbose").text.endswith(
        "[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n"
    )
    mock_kubelet.stop()
    for path in ("/healthz", "/readyz"):
        assert "[-]syncloop failed: reason withheld" in get(path).text
        assert get(path).status == 500
    assert get("/healthz/syncloop").text == "internal server error: the kubelet is stopped\n"
    assert (get("/livez").status, get("/readyz?exclude=syncloop").status) == (200, 200)
    missing = get("/livez/syncloop")
    assert (missing.status, missing.text) == (404, "unknown check: use one of ping, log\n")


@pytest.mark.parametrize("path", ["/pods", "/metrics", "/metrics/resource", "/configz", "/x"])
def test_other_sites_cannot_load_responses(get, path):
    headers = get(path).headers
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"


def test_unknown_path_and_method_are_rejected(get, served):
    assert (get("/x").status, get("/x").text) == (404, "GET '/x': not found\n")
    off = get("/v1/node")
    text = "GET '/v1/node': not found: the control API is not enabled\n"
    assert (off.status, off.text) == (404, text)
    assert get("/openapi.json").status == 404
    posted = fetch(served.address, "/healthz", method="POST")
    assert (posted.status, posted.text) == (405, "POST '/healthz': method not allowed\n")
    head = fetch(served.address, "/healthz", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "2")


@pytest.mark.parametrize("path", ["/healthz", "/x"])
def test_requests_with_foreign_host_or_origin_are_forbidden(served, get, path):
    port = served.address.rpartition(":")[2]
    assert get("/healthz", Host=f"localhost:{port}", Origin=served.url).status == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert get("/healthz", **link).status == 200
    for headers in (
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert get(path, **headers).status == 403


def test_control_api_is_served_on_the_same_server(mock_kubelet):
    control = ControlServer(mock_kubelet, tcp="127.0.0.1:0")
    with HttpServer(mock_kubelet, "127.0.0.2:0", control=control) as server:
        token = control.token_path.read_text().strip()
        assert control.address != server.address
        for address in (control.address, server.address):
            assert fetch(address, "/healthz").text == "ok"
            assert fetch(address, "/v1/node").status == 401
            client = MockKubeletClient(f"http://{address}", token=token)
            assert client.plugin_socket == mock_kubelet.plugin_socket
        assert MockKubeletClient(mock_kubelet.root).root == mock_kubelet.root
        with pytest.raises(RequestError, match=r"^HTTP is already served"):
            server.start()
    assert server.address is control.address is None
    assert not control.socket_path.exists()
    with pytest.raises(RequestError, match=r"^the HTTP server is not running: start it first"):
        server.url  # noqa: B018


def test_changes_are_rejected_without_control_api(served):
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "}):
        answer = fetch(served.address, "/page/device-health", headers, "POST", "{}")
        assert answer.status == 401


@pytest.mark.parametrize(
    ("listener", "address", "accepts"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1), True),
        ("127.0.0.1:1", ("127.0.0.2", 1), False),
        ("127.0.0.1:1", ("127.0.0.1", 2), False),
        ("0.0.0.0:1", ("192.0.2.1", 1), True),
        ("[::]:1", ("::1", 1), True),
    ],
)
def test_listener_accepts_connections_to_its_address(listener, address, accepts):
    assert TcpAddress.parse(listener).takes(*address) is accepts


def test_start_fails_if_port_is_in_use(mock_kubelet, served):
    with pytest.raises(StartError) as caught:
        HttpServer(mock_kubelet, served.address).start()
    text = f"HTTP cannot start: cannot listen on {served.address}: another program uses this port"
    assert str(caught.value) == f"{text}: choose another one, or 0 for any free port"


def test_control_api_shares_the_listener_without_its_address(mock_kubelet):
    control = ControlServer(mock_kubelet)
    with HttpServer(mock_kubelet, "127.0.0.1:0", control=control) as server:
        assert control.address == server.address
        assert fetch(server.address, "/v1/node").status == 401


def test_bug_is_reported_to_client_and_as_event(mock_kubelet, monkeypatch):
    async def broken(request):
        raise ValueError("a\nb")

    monkeypatch.setattr(
        "devicemanager.observe.web.server.PARTS", (lambda _: [Route("/x", broken)],)
    )
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        found = fetch(server.address, "/x")
    assert (found.status, found.text) == (500, "unexpected ValueError: a b (a bug)\n")
    (event,) = mock_kubelet.events.recent(EventKind.SERVER_ERROR)
    assert event.message == "HTTP: unexpected ValueError: a b (a bug)"


def test_metrics_are_counted_without_scrapes(mock_kubelet, monkeypatch):
    monkeypatch.setattr("devicemanager.observe.metrics.reader._QUEUE_LIMIT", 2)
    server = HttpServer(mock_kubelet, "127.0.0.1:0")

    # The length of the queue is memory, and no public method returns it.
    reader = server._metrics._reader

    def queued():
        return len(reader._queue)

    def publish():
        for _ in range(3):
            mock_kubelet.events.publish(EventKind.ADMITTED, "a", seconds=0, containers=1)

    publish()
    assert queued() == 1  # the server does not run yet: the publishing thread counted
    with server:
        publish()
        deadline = time.monotonic() + 20
        while queued() > 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        text = fetch(server.address, "/metrics").text
    assert "kubelet_topology_manager_admission_requests_total 6.0" in text
    publish()
    assert queued() == 0
