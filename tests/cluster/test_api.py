"""Requests: errors, what is tried again, credentials, streams. On real sockets."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from devicemanager.cluster.client import api as api_module
from devicemanager.cluster.client.api import ApiClient, node_path, pod_path
from devicemanager.cluster.client.credentials import Credentials, Server, load
from devicemanager.cluster.client.errors import (
    ApiError,
    ClientClosing,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unavailable,
)
from devicemanager.cluster.fake_apiserver import FakeApiServer

NODE = {"metadata": {"name": "a"}}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(api_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(api_module, "LONGEST_WAIT", 0.05)


def test_an_object_comes_and_goes(api):
    created = api.request("POST", "/api/v1/nodes", NODE)
    assert created["metadata"]["uid"]
    patched = api.request(
        "PATCH", node_path("a", "status"), {"status": {"phase": "x"}}, patch="strategic"
    )
    assert patched["status"] == {"phase": "x"}
    assert api.request("GET", "/api/v1/nodes", query={"limit": "5"})["items"] == [patched]
    api.request("DELETE", node_path("a"))
    with pytest.raises(NotFound) as caught:
        api.request("GET", node_path("a"))
    assert caught.value.message == 'nodes "a" not found'
    assert caught.value.path == "/api/v1/nodes/a"


@pytest.mark.parametrize(
    "code, error", [(403, Forbidden), (409, Conflict), (410, Gone), (422, Invalid), (418, ApiError)]
)
def test_what_the_caller_has_to_judge_comes_at_once(api, stub, code, error):
    stub.faults.fail(code)
    with pytest.raises(error) as caught:
        api.request("POST", "/api/v1/nodes", NODE)
    assert caught.value.code == code
    assert stub.requests["create", "nodes"] == 1


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(connect, stub, code, monkeypatch):
    said = []
    api = connect(warn=said.append)
    waited = []
    # A second each that the answers ask for. Nothing but this event can end the waiting.
    monkeypatch.setattr(api._closing, "wait", waited.append)
    stub.faults.fail(code, times=3)
    assert api.request("POST", "/api/v1/nodes", NODE)["metadata"]["name"] == "a"
    assert stub.requests["create", "nodes"] == 4
    assert len(said) == 1, "once a minute"
    assert len(waited) == 3
    # Retry-After of 429 is a second; the others are full jitter below what doubles.
    assert all((wait >= 1) is (code == 429) for wait in waited)


def test_a_server_that_stops_is_waited_for(api, stub):
    api.request("POST", "/api/v1/nodes", NODE)
    stub.stop()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.request, "GET", node_path("a"))
        stub.start()
        assert waiting.result(20)["metadata"]["name"] == "a"


def test_once_means_once(api, stub):
    stub.stop()
    with pytest.raises(Unavailable):
        api.attempt("GET", node_path("a"))


def test_closing_ends_the_waiting(connect, stub):
    stub.faults.fail(500)
    rejected = threading.Event()
    api = connect(warn=lambda text: rejected.set())
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.request, "GET", node_path("a"))
        assert rejected.wait(20)
        api.close()
        with pytest.raises(ClientClosing):
            waiting.result(20)
    with pytest.raises(ClientClosing):
        api.request("GET", node_path("a"))


def test_never_more_requests_than_connections(connect, stub):
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

    stub.faults.second_writer = counted  # asked of each request that changes something
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: api.request("PATCH", node_path("a"), {}, patch="merge"), range(8)))
    assert most == 3


def test_a_token_that_is_replaced_is_read_again(tmp_path):
    with FakeApiServer(token="new") as stub:
        path = stub.kubeconfig(tmp_path / "kubeconfig")
        right = path.read_text()
        path.write_text(right.replace('"new"', '"old"'))
        api = ApiClient(load(path))
        with pytest.raises(ApiError) as caught:
            api.attempt("GET", "/api/v1/nodes")
        assert caught.value.code == 401
        path.write_text(right)
        assert api.request("GET", "/api/v1/nodes")["items"] == []
        api.close()


def test_acting_as_a_node_needs_the_right_to(api, stub):
    stub.rights.allowed = frozenset()
    with pytest.raises(Forbidden, match="cannot impersonate"):
        api.request("GET", node_path("a"), user="a")


def test_lines_of_a_stream_and_one_that_is_cut(api, stub):
    query = {"watch": "true", "resourceVersion": str(stub.objects.store.version)}
    with api.stream("/api/v1/nodes", query, silence=20) as lines:
        stub.create("nodes", NODE)
        assert b'"ADDED"' in next(lines)
        stub.cut_streams()
        with pytest.raises(Unavailable):
            next(lines)
            raise AssertionError
    assert stub.requests["watch", "nodes"] == 1


def test_a_stream_that_is_rejected(api, stub):
    stub.faults.fail(410)
    with (
        pytest.raises(Gone),
        api.stream("/api/v1/nodes", {"watch": "true"}, silence=20) as lines,
    ):
        next(lines)


def test_a_silent_stream_is_broken(api, stub):
    query = {"watch": "true", "resourceVersion": str(stub.objects.store.version)}
    with (
        pytest.raises(Unavailable),
        api.stream("/api/v1/nodes", query, silence=0.05) as lines,
    ):
        next(lines)


def test_paths():
    assert node_path("a", "status") == "/api/v1/nodes/a/status"
    assert pod_path("ns", "a") == "/api/v1/namespaces/ns/pods/a"


def test_closing_ends_a_stream(api, stub):
    query = {"watch": "true", "resourceVersion": str(stub.objects.store.version)}
    with api.stream("/api/v1/nodes", query, silence=20) as lines, ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, lines, None)
        api.close()
        with contextlib.suppress(Unavailable):
            assert waiting.result(10) is None


@pytest.fixture
def answering(tmp_path):
    """Makes clients of a server that always gives one answer."""
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
            nobody = Credentials(Server(url, (), None), lambda: None, lambda: nobody)
            client = ApiClient(nobody)
            stack.callback(client.close)
            return client

        yield make


@pytest.mark.parametrize("code", [200, 299])
def test_every_2xx_is_an_answer(answering, code):
    assert answering(code, b'{"a": 1}').attempt("GET", "/x") == {"a": 1}


STATUS = b'{"reason": "R", "message": "m"}'


@pytest.mark.parametrize(
    ("code", "body", "error", "text"),
    [
        (200, b"[]", Unavailable, "GET /x: the answer is no JSON object"),
        (200, b"", Unavailable, "GET /x: the answer is no JSON object"),
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
def test_what_is_made_of_an_answer(answering, code, body, error, text):
    with pytest.raises(error) as caught:
        answering(code, body).attempt("GET", "/x")
    assert type(caught.value) is error and str(caught.value) == text


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0.0), ("7", 7.0), ("999", 999.0), ("1000", 0.0), ("soon", 0.0), ("-1", 0.0)],
)
def test_how_long_a_server_asks_not_to_be_asked(answering, header, seconds):
    with pytest.raises(Unavailable) as caught:
        answering(503, STATUS, header).attempt("GET", "/x")
    assert caught.value.wait == seconds


def test_a_line_of_a_stream_that_does_not_end_is_a_broken_stream(answering, monkeypatch):
    monkeypatch.setattr(api_module, "_LONGEST_LINE", 1 << 17)
    with answering(200, b"a\n" + b"x" * (1 << 19)).stream("/x", {}, silence=5.0) as lines:
        assert next(lines) == b"a"
        with pytest.raises(Unavailable, match="longer than 131072 bytes"):
            next(lines)
