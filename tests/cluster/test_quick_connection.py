"""Requests in one piece, and answers that are read whole, from a server that says given bytes."""

import contextlib
import http.client
import socket
import threading

import pytest
import urllib3
from urllib3.exceptions import HTTPError

from devicemanager.cluster.quickconnection import make_quick

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def serve():
    """Makes pools of one connection to a server that answers each request with the next text."""
    with contextlib.ExitStack() as stack:

        def serve(*answers):
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listening.settimeout(20)

            def answer():
                left = list(answers)
                while left:
                    connection, _ = listening.accept()
                    with connection, connection.makefile("rb") as asked:
                        text = b""
                        while left and b"close" not in text and read_request(asked):
                            text = left.pop(0)
                            connection.sendall(text)

            thread = threading.Thread(target=answer)
            thread.start()
            stack.callback(thread.join, 20)
            pool = stack.enter_context(
                urllib3.HTTPConnectionPool("127.0.0.1", listening.getsockname()[1], timeout=20)
            )
            make_quick(pool)
            return pool

        yield serve


def read_request(asked):
    length = 0
    while (line := asked.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return line and (asked.read(length) or True)


def ask(pool, body=b"{}"):
    return pool.urlopen("PATCH", "/a", body, {"X": "y"}, retries=False)


def test_head_and_body_go_out_in_one_piece(serve, monkeypatch):
    sent = []
    send = http.client.HTTPConnection.send
    monkeypatch.setattr(
        http.client.HTTPConnection, "send", lambda self, data: sent.append(data) or send(self, data)
    )
    pool = serve(HEAD + b"Content-Length: 2\r\n\r\n{}")
    assert ask(pool, b'{"a": 1}').data == b"{}"
    (piece,) = sent
    assert piece.startswith(b"PATCH /a HTTP/1.1\r\n") and piece.endswith(b'\r\n\r\n{"a": 1}')
    assert b"\r\nContent-Length: 8\r\n" in piece and b"\r\nX: y\r\n" in piece


def test_a_connection_serves_again_and_is_replaced_when_the_server_ends_it(serve):
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    pool = serve(
        HEAD + b"Content-Length: 1\r\n\r\na",
        HEAD + chunked,
        HEAD + b"Connection: close\r\n\r\nthe rest",
        HEAD + b"Content-Length: 0\r\n\r\n",
    )
    assert [ask(pool).data or b"" for _ in range(4)] == [b"a", b"abcde", b"the rest", b""]


def test_what_callers_look_at_is_kept(serve):
    pool = serve(b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 1\r\n\r\nx")
    answer = ask(pool)
    assert (answer.status, answer.headers.get("Retry-After")) == (429, "7")


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" + HEAD + b"content-LENGTH: 2\r\n\r\nok",
        HEAD + b"Content-Length:2\nNo colon\n\nok",
        HEAD
        + b"Content-Length: 9\r\nTransfer-Encoding: Chunked\r\n\r\n2;x\r\nok\r\n0\r\nT: u\r\n\r\n",
        b"HTTP/1.0 200\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nX: close\r\n\r\nok",
        HEAD + b"Content-Length: two\r\nX: close\r\n\r\nok",
    ],
)
def test_heads_of_all_kinds(serve, text):
    pool = serve(text, HEAD + b"Content-Length: 4\r\n\r\nnext")
    assert ask(pool).data == b"ok"
    assert ask(pool).data == b"next"


def test_an_answer_that_has_no_body_by_its_code(serve):
    pool = serve(
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        HEAD + b"Content-Length: 1\r\n\r\na",
    )
    assert (ask(pool).status, ask(pool).data) == (204, b"a")


CUT = HEAD + b"Content-Length: 9\r\nConnection: close\r\n\r\nab"


@pytest.mark.parametrize(
    "text",
    [
        CUT,
        b"no HTTP, close\r\n",
        b"HTTP/1.1 OK close\r\n\r\n",
        b"HTTP/2 200 close\r\n\r\n",
        b"\r\nclose",
        HEAD + b"X: close\r\n" * 101 + b"\r\n",
        HEAD + b"X: close" + b"x" * 70000 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nX: close\r\n\r\n5\r\nab",
    ],
)
def test_an_answer_that_is_cut_or_none_is_an_error(serve, text):
    pool = serve(text)
    with pytest.raises(HTTPError):
        ask(pool)
