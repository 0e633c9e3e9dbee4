"""Requests on real sockets: errors, retries, credentials, streams."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.client import api as api_module
from devicemanager.client.api import ApiClient, node_path, pod_path
from devicemanager.client.credentials import Credentials, Server, load
from devicemanager.client.errors import (
    ApiError,
    ClientClosing,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
)

NODE = {"metadata": {"name": "a"}}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(api_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(api_module, "LONGEST_WAIT", 0.05)


def test_create_patch_list_and_delete(api):
    created = api.request("POST", "/api/v1/nodes", NODE)
    assert created["metadata"]["uid"]
    patched = api.request(
        "PATCH", node_path("a", "status"), {"status": {"phase": "x"}}, patch="strategic"
    )
    assert patched["status"] == {"phase": "x"}
    (listed,) = api.request("GET", "/api/v1/nodes", query={"limit": "5"})["items"]
    assert {"apiVersion": "v1", "kind": "Node", **listed} == patched
    api.request("DELETE", node_path("a"))
    with pytest.raises(NotFound) as caught:
        api.request("GET", node_path("a"))
    assert caught.value.message == 'nodes "a" not found'
    assert caught.value.path == "/api/v1/nodes/a"


@pytest.mark.parametrize(
    ("code", "error"),
    [(403, Forbidden), (409, Conflict), (410, Gone), (422, Invalid), (418, ApiError)],
)
def test_other_errors_are_raised_at_once(api, apiserver, code, error):
    apiserver.faults.fail(code)
    with pytest.raises(error) as caught:
        api.request("POST", "/api/v1/nodes", NODE)
    assert caught.value.code == code
    assert apiserver.requests["create", "nodes"] == 1


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_temporary_errors_are_retried(connect, apiserver, code, monkeypatch):
    warnings = []
    api = connect(warn=warnings.append)
    waited = []
    # Retry-After is a second. Only this event ends the wait.
    monkeypatch.setattr(api._closing, "wait", waited.append)
    apiserver.faults.fail(code, times=3)
    assert api.request("POST", "/api/v1/nodes", NODE)["metadata"]["name"] == "a"
    assert apiserver.requests["create", "nodes"] == 4
    assert len(warnings) == 1, "at most one per minute"
    assert len(waited) == 3
    # 429 has Retry-After; the others use full jitter below the backoff.
    assert all((wait >= 1) is (code == 429) for wait in waited)


def test_request_waits_for_a_stopped_server(api, apiserver):
    api.request("POST", "/api/v1/nodes", NODE)
    apiserver.stop()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.request, "GET", node_path("a"))
        apiserver.start()
        assert waiting.result(20)["metadata"]["name"] == "a"


def test_attempt_does_not_retry(api, apiserver):
    apiserver.stop()
    with pytest.raises(Unavailable):
        api.attempt("GET", node_path("a"))


def test_close_ends_waits_before_retries(connect, apiserver):
    apiserver.faults.fail(500)
    failed = threading.Event()
    api = connect(warn=lambda text: failed.set())
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.request, "GET", node_path("a"))
        assert failed.wait(20)
        api.close()
        with pytest.raises(ClientClosing):
            waiting.result(20)
    with pytest.raises(ClientClosing):
        api.request("GET", node_path("a"))


def test_requests_are_limited_by_connections(connect, apiserver):
    api = connect(connections=3)
    now, most, lock = 0, 0, threading.Lock()
    all_there = threading.Event()
    api.request("POST", "/api/v1/nodes", NODE)

    def counted(_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now == 3:
                all_there.set()
        all_there.wait(20)
        with lock:
            now -= 1
        return False

    apiserver.faults.second_writer = counted  # called for each PATCH
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: api.request("PATCH", node_path("a"), {}, patch="merge"), range(8)))
    assert most == 3


@pytest.fixture
def replaced_token(tmp_path):
    """Server with the token ``new``, a client with ``old``, and a function that writes a
    kubeconfig with the given token."""
    with FakeApiServer(token="new") as apiserver:
        path = apiserver.kubeconfig(tmp_path / "kubeconfig")
        right = path.read_text()

        def write(token):
            path.write_text(right.replace('"new"', f'"{token}"'))

        write("old")
        client = ApiClient(load(path))
        yield apiserver, client, write
        client.close()


def test_replaced_token_is_read_after_401(replaced_token):
    _, api, write = replaced_token
    with pytest.raises(ApiError) as caught:
        api.attempt("GET", "/api/v1/nodes")
    assert caught.value.code == 401
    write("new")
    assert api.request("GET", "/api/v1/nodes")["items"] == []


def test_stream_reads_a_replaced_token_after_401(replaced_token):
    apiserver, api, write = replaced_token
    query = {"watch": "true", "resourceVersion": str(apiserver.version)}
    with pytest.raises(Unauthorized), api.stream("/api/v1/nodes", query, silence=20):
        pass
    write("new")
    with api.stream("/api/v1/nodes", query, silence=20) as lines:
        apiserver.create("nodes", NODE)
        assert b'"ADDED"' in next(lines)


def test_unreadable_credentials_after_401_are_a_temporary_error(replaced_token, tmp_path):
    _, api, _ = replaced_token
    (tmp_path / "kubeconfig").write_text("half")
    with pytest.raises(Unavailable, match="kubeconfig: not a kubeconfig file"):
        api.attempt("GET", "/api/v1/nodes")
    stream = api.stream("/api/v1/nodes", {"watch": "true"}, silence=20)
    with pytest.raises(Unavailable, match="kubeconfig: not a kubeconfig file"), stream:
        pass


def test_user_requires_the_permission_to_impersonate(api, apiserver):
    apiserver.permissions.allowed = frozenset()
    with pytest.raises(Forbidden, match="cannot impersonate"):
        api.request("GET", node_path("a"), user="a")


def test_stream_yields_lines_until_it_breaks(api, apiserver):
    query = {"watch": "true", "resourceVersion": str(apiserver.version)}
    with api.stream("/api/v1/nodes", query, silence=20) as lines:
        apiserver.create("nodes", NODE)
        assert b'"ADDED"' in next(lines)
        apiserver.cut_streams()
        with pytest.raises(Unavailable):
            next(lines)
            raise AssertionError
    assert apiserver.requests["watch", "nodes"] == 1


def test_stream_raises_the_error_of_the_response(api, apiserver):
    apiserver.faults.fail(410)
    with (
        pytest.raises(Gone),
        api.stream("/api/v1/nodes", {"watch": "true"}, silence=20) as lines,
    ):
        next(lines)


def test_silent_stream_is_broken(api, apiserver):
    query = {"watch": "true", "resourceVersion": str(apiserver.version)}
    with (
        pytest.raises(Unavailable),
        api.stream("/api/v1/nodes", query, silence=0.05) as lines,
    ):
        next(lines)


def test_paths_of_nodes_and_pods():
    assert node_path("a", "status") == "/api/v1/nodes/a/status"
    assert pod_path("ns", "a") == "/api/v1/namespaces/ns/pods/a"


def test_close_ends_a_stream(api, apiserver):
    query = {"watch": "true", "resourceVersion": str(apiserver.version)}
    with api.stream("/api/v1/nodes", query, silence=20) as lines, ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, lines, None)
        api.close()
        with contextlib.suppress(Unavailable):
            assert waiting.result(10) is None


@pytest.fixture
def responding(tmp_path):
    """Create clients of a server that always sends the same response."""
    with contextlib.ExitStack() as stack:

        def make(code, body, retry_after=None):
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(body)))
                    if retry_after is not None:
                        self.send_header("Retry-After", retry_after)
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_):
                    pass

            server = stack.enter_context(HTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            url = f"http://127.0.0.1:{server.server_address[1]}"
            anonymous = Credentials(Server(url, (), None), lambda: None, lambda: anonymous)
            client = ApiClient(anonymous)
            stack.callback(client.close)
            return client

        yield make


@pytest.mark.parametrize("code", [200, 299])
def test_every_2xx_is_a_success(responding, code):
    assert responding(code, b'{"a": 1}').attempt("GET", "/x") == {"a": 1}


STATUS = b'{"reason": "R", "message": "m"}'


@pytest.mark.parametrize(
    ("code", "body", "error", "text"),
    [
        (200, b"[]", Unavailable, "GET /x: response is not a JSON object"),
        (200, b"", Unavailable, "GET /x: response is not a JSON object"),
        (300, STATUS, ApiError, "GET /x: 300 R: m"),
        (404, STATUS, NotFound, "GET /x: 404 R: m"),
        (404, b"no\n  page", NotFound, "GET /x: 404 : no page"),
        (404, b"[]", NotFound, "GET /x: 404 : []"),
        (404, b"", NotFound, "GET /x: 404 : "),
        (404, b'{"message": "%b"}' % (b"x" * 400), NotFound, f"GET /x: 404 : {'x' * 300}"),
        (404, b"y" * 400, NotFound, f"GET /x: 404 : {'y' * 300}"),
        (500, STATUS, Unavailable, "GET /x: 500 R: m"),
        (429, STATUS, Unavailable, "GET /x: 429 R: m"),
        (499, STATUS, ApiError, "GET /x: 499 R: m"),
    ],
)
def test_response_becomes_an_error(responding, code, body, error, text):
    with pytest.raises(error) as caught:
        responding(code, body).attempt("GET", "/x")
    assert type(caught.value) is error and str(caught.value) == text


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0.0), ("7", 7.0), ("999", 999.0), ("1000", 0.0), ("soon", 0.0), ("-1", 0.0)],
)
def test_retry_after_header_is_parsed(responding, header, seconds):
    with pytest.raises(Unavailable) as caught:
        responding(503, STATUS, header).attempt("GET", "/x")
    assert caught.value.wait == seconds


def test_endless_line_is_a_broken_stream(responding, monkeypatch):
    monkeypatch.setattr(api_module, "_MAX_LINE", 1 << 17)
    with responding(200, b"a\n" + b"x" * (1 << 19)).stream("/x", {}, silence=5.0) as lines:
        assert next(lines) == b"a"
        with pytest.raises(Unavailable, match=r"^a line of the stream is longer than 131072 bytes"):
            next(lines)
