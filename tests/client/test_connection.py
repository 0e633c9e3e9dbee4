"""HTTP/1.1 on real sockets: bodies, reuse of connections, malformed responses, proxies."""

import contextlib
import gc
import io
import shutil
import socket
import ssl
import threading

import pytest

from devicemanager.client import api as api_module
from devicemanager.client import connection as connection_module
from devicemanager.client.api import ApiClient
from devicemanager.client.connection import Connection, ConnectionPool
from devicemanager.client.credentials import Credentials, Server
from devicemanager.client.errors import Unavailable

REQUEST = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Scripted:
    """A server that answers each request with the next of its responses.

    It ends a connection after a response in ``last``.
    """

    def __init__(self, responses, last=(), context=None):
        self._responses = list(responses)
        self._last = last
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._lock = threading.Lock()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._accept)]
        self.connections = 0
        self.requests = []
        self.ended = threading.Event()
        """Set when the server has ended a connection."""
        self._threads[0].start()

    @property
    def port(self):
        return self._listener.getsockname()[1]

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.connections += 1
                self._end_at_close(accepted)
                thread = threading.Thread(target=self._serve, args=(accepted,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, accepted):
        with contextlib.suppress(OSError, IndexError):
            if self._context is not None:
                accepted = self._context.wrap_socket(accepted, server_side=True)
            with accepted.makefile("rb") as file:
                while line := file.readline():
                    request = [line]
                    while (line := file.readline()).strip():
                        request.append(line)
                    self.requests.append(b"".join(request))
                    response = self._responses.pop(0)
                    accepted.sendall(response)
                    if response in self._last:
                        break
        # Closing it is not enough, because there is a duplicate.
        _end(accepted)
        self.ended.set()

    def _end_at_close(self, connection):
        """Let ``close`` end a connection, or end it now if ``close`` was called.

        A duplicate is stored, because TLS takes the descriptor of the original.
        """
        with self._lock:
            self._sockets.append(connection.dup())
            if self._is_closed:
                _end(self._sockets.pop())

    def close(self):
        with self._lock:
            self._is_closed = True
            for each in self._sockets:
                _end(each)
        for thread in self._threads:
            thread.join()


def _end(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def serve(*responses, last=(), context=None):
            found = Scripted(responses, last, context)
            stack.callback(found.close)
            return found

        yield serve


def url(server):
    return Server(f"http://127.0.0.1:{server.port}")


def exchanged(server):
    """Send a request on a new connection; return the response and its body."""
    with contextlib.closing(Connection(url(server), 20.0)) as connection:
        response = connection.exchange(REQUEST)
        return response, response.read()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "body"),
    [
        pytest.param(LENGTH, b"ok", id="length"),
        pytest.param(LENGTH.replace(b"\r\n", b"\n"), b"ok", id="lines of LF"),
        pytest.param(LENGTH.replace(b" OK", b""), b"ok", id="no reason"),
        pytest.param(LENGTH.replace(b"Content-Length: ", b"content-length:"), b"ok", id="case"),
        pytest.param(b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\n" + LENGTH, b"ok", id="informational"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="no content"),
        pytest.param(
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", b"", id="not modified"
        ),
        pytest.param(CHUNKED + b"1\r\no\r\n1;a=b\r\nk\r\n0\r\n\r\n", b"ok", id="chunks"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\nA: b\r\n\r\n", b"ok", id="trailers"),
        pytest.param(CHUNKED + b"1A \r\n%b\r\n0\r\n\r\n" % (b"x" * 26), b"x" * 26, id="hex"),
    ],
)
def test_body_is_read_and_the_connection_is_used_again(serve, response, body):
    server = serve(response, response)
    pool = ConnectionPool(url(server), 2, 20.0)
    assert [pool.exchange(REQUEST)[1] for _ in range(2)] == [body] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(LENGTH.replace(b"OK", b"OK\r\nConnection: close"), id="close"),
        pytest.param(LENGTH.replace(b"1.1", b"1.0"), id="HTTP/1.0"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok", id="no length"),
    ],
)
def test_connection_that_the_server_closes_is_not_used_again(serve, response):
    server = serve(response, response, last=(response,))
    pool = ConnectionPool(url(server), 1, 20.0)
    assert [pool.exchange(REQUEST)[1] for _ in range(2)] == [b"ok"] * 2
    assert server.connections == 2


def test_connection_that_ended_while_idle_is_replaced(serve):
    first = LENGTH.replace(b"OK", b"First")
    server = serve(first, LENGTH, last=(first,))
    pool = ConnectionPool(url(server), 1, 20.0)
    pool.exchange(REQUEST)
    assert server.ended.wait(20)
    assert pool.exchange(REQUEST)[1] == b"ok"
    assert server.connections == 2


def test_headers_have_lowercase_names(serve):
    response, _ = exchanged(serve(LENGTH.replace(b"OK", b"OK\r\nRetry-After:  7 ")))
    assert response.status == 200
    assert response.headers == {"retry-after": "7", "content-length": "2"}


PIECE = 65_536


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 131073\r\n\r\n", id="length"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="to the end"),
        pytest.param(CHUNKED + b"20001\r\n", id="chunk"),
    ],
)
def test_body_is_read_in_pieces(monkeypatch, head):
    connection = Connection.__new__(Connection)
    tail = b"\r\n0\r\n\r\n" if head.startswith(CHUNKED) else b""
    connection._file = io.BytesIO(head + b"x" * (2 * PIECE + 1) + tail)
    keeps, status, headers = connection._head()
    pieces = [len(each) for each in connection._body(status, headers, keeps)]
    assert pieces == [PIECE, PIECE, 1]
    assert connection._is_idle is (b"OK\r\n\r\n" not in head)


def test_large_body_is_read_whole(serve):
    body = bytes(range(256)) * 2000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert exchanged(serve(head + body))[1] == body


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"SSH-2.0-x\r\n", "response is not HTTP/1.1: 'SSH-2.0-x'"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "response is not HTTP/1.1: 'HTTP/1.1 20 OK'"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300, "response has more than 200 headers"),
        (b"y" * (1 << 17), "response has a header of more than 65536 bytes"),
        (LENGTH.replace(b"2\r", b"-2\r"), "response has the invalid Content-Length '-2'"),
        (CHUNKED + b"-1\r\n", "response has the invalid chunk size '-1'"),
        (CHUNKED + b"1\r\nab\r\n", "response has a chunk that is longer than its stated size"),
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 300, "response has more than 200 trailers"),
    ],
)
def test_malformed_response_is_an_error(serve, response, text):
    with pytest.raises(ValueError, match=r".") as caught:
        exchanged(serve(response))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nA: b\r\n",
        LENGTH[:-1],
        CHUNKED + b"5\r\nab",
        CHUNKED + b"2\r\nab\r\n",
    ],
)
def test_incomplete_response_is_an_error(serve, response):
    with pytest.raises(ConnectionError, match="ended the connection before the end of the respon"):
        exchanged(serve(response, last=(response,)))


def test_unread_body_is_not_taken_for_the_next_response(serve):
    server = serve(CHUNKED + b"x\r\n", LENGTH)
    pool = ConnectionPool(url(server), 1, 20.0)
    with pytest.raises(ValueError, match="chunk size"):
        pool.exchange(REQUEST)
    assert pool.exchange(REQUEST)[1] == b"ok"
    assert server.connections == 2


def test_shutdown_ends_a_read_of_another_thread(serve):
    server = serve(CHUNKED + b"2\r\nok\r\n")
    connection = Connection(url(server), 20.0)
    chunks = connection.exchange(REQUEST).chunks
    assert next(chunks) == b"ok"
    threading.Thread(target=connection.shutdown).start()
    with pytest.raises(ConnectionError):
        next(chunks)
    connection.close()
    connection.shutdown()


def test_pool_that_nothing_uses_closes_its_connections(serve):
    server = serve(LENGTH)
    pool = ConnectionPool(url(server), 2, 20.0)
    pool.exchange(REQUEST)
    del pool
    gc.collect()
    assert server.ended.wait(20)


def test_request_has_one_write(serve, monkeypatch):
    """Two writes would be two TLS records and, with Nagle's algorithm, a delay."""
    writes = []
    real = connection_module.Connection.exchange

    def exchange(self, request):
        writes.append(request)
        return real(self, request)

    monkeypatch.setattr(connection_module.Connection, "exchange", exchange)
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    client(url(server), "Bearer t").attempt("PUT", "/a b", {"c": "d"}, query={"e": "f"}, user="n")
    assert writes == [
        b"PUT /a%%20b?e=f HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n"
        b"Accept-Encoding: identity\r\nContent-Type: application/json\r\n"
        b"User-Agent: devicemanager-join\r\nAuthorization: Bearer t\r\n"
        b"Impersonate-User: system:node:n\r\nImpersonate-Group: system:nodes\r\n"
        b'Content-Length: 9\r\n\r\n{"c":"d"}' % server.port
    ]


def client(server, token=None):
    credentials = Credentials(server, lambda: token, lambda: credentials)
    return ApiClient(credentials)


@pytest.mark.parametrize("token", ["Bearer secret\nA: b", "Bearer secret\r", "secret\x00"])
def test_header_that_cannot_be_sent_is_an_error_without_its_value(serve, token):
    server = serve(LENGTH)
    with pytest.raises(Unavailable) as caught:
        client(url(server), token).attempt("GET", "/x")
    text = "the value of the header Authorization has characters that cannot be sent"
    assert str(caught.value) == text
    assert not server.requests


def test_stream_that_is_refused_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    api = client(Server(f"http://127.0.0.1:{port}"))
    with (
        pytest.raises(Unavailable, match="Connection refused"),
        api.stream("/x", {}, silence=20.0) as lines,
    ):
        next(lines)


# -- TLS and proxies ---------------------------------------------------------------------------


_CONNECTED = b"HTTP/1.1 200 OK\r\n\r\n"


class Proxy(Scripted):
    """A proxy that connects each client to one server, after its own answer.

    After any answer but 200, it ends the connection.
    """

    def __init__(self, target, answer=_CONNECTED):
        self._target = target
        self._answer = answer
        super().__init__(())

    def _serve(self, accepted):
        with contextlib.suppress(OSError):
            self._forward(accepted)
        _end(accepted)

    def _forward(self, accepted):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += accepted.recv(1)
        self.requests.append(request)
        accepted.sendall(self._answer)
        if self._answer != _CONNECTED:
            return
        with socket.create_connection(("127.0.0.1", self._target)) as upstream:
            self._end_at_close(upstream)
            back = threading.Thread(target=_copy, args=(upstream, accepted))
            back.start()
            _copy(accepted, upstream)
            back.join()


def _copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def through():
    """Function that starts a proxy; the proxies end before the servers behind them."""
    with contextlib.ExitStack() as stack:

        def through(*arguments):
            proxy = Proxy(*arguments)
            stack.callback(proxy.close)
            return proxy, f"http://127.0.0.1:{proxy.port}"

        yield through


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """An authority, and the certificate of a server on 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    from tools.cluster.certificates import Authority

    authority = Authority.create(tmp_path_factory.mktemp("certificates"))
    return authority, authority.sign("server", "server")


@pytest.fixture
def secure(serve, pair):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair[1].certificate, pair[1].key)
    return serve(LENGTH, LENGTH, context=context)


def trusting(pair, server, proxy=None):
    tls = (("ca_certs", str(pair[0].certificate)), ("cert_reqs", ssl.CERT_REQUIRED))
    return Server(f"https://127.0.0.1:{server.port}", tls, proxy)


def test_server_with_tls(secure, pair):
    pool = ConnectionPool(trusting(pair, secure), 1, 20.0)
    assert [pool.exchange(REQUEST)[1] for _ in range(2)] == [b"ok"] * 2
    assert secure.connections == 1


def test_unknown_authority_is_an_error(secure):
    server = Server(f"https://127.0.0.1:{secure.port}", (("cert_reqs", ssl.CERT_REQUIRED),))
    with pytest.raises(OSError, match="certificate verify failed"):
        Connection(server, 20.0)


def test_shutdown_ends_a_read_with_tls(secure, pair):
    connection = Connection(trusting(pair, secure), 20.0)
    connection.exchange(REQUEST).read()
    threading.Thread(target=connection.shutdown).start()
    with pytest.raises(OSError, match=r"."):
        connection._line()
    connection.close()


@pytest.mark.parametrize("tls", [True, False])
def test_requests_go_through_the_proxy(secure, serve, through, pair, tls):
    target = secure if tls else serve(LENGTH)
    proxy, address = through(target.port)
    server = (
        trusting(pair, target, address)
        if tls
        else Server(f"http://127.0.0.1:{target.port}", (), address)
    )
    pool = ConnectionPool(server, 1, 20.0)
    assert pool.exchange(REQUEST)[1] == b"ok"
    assert proxy.requests[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1." % target.port)


def test_proxy_that_refuses_is_an_error(secure, through, pair):
    _, address = through(secure.port, b"HTTP/1.1 407 Who\r\n\r\n")
    with pytest.raises(OSError, match="Tunnel connection failed: 407 Who"):
        Connection(trusting(pair, secure, address), 20.0)


def test_response_that_is_not_of_a_proxy_is_an_error(secure, through, pair):
    _, address = through(secure.port, b"SSH-2.0-x\r\n\r\n")
    with pytest.raises(ConnectionError, match="SSH"):
        Connection(trusting(pair, secure, address), 20.0)


def test_error_is_one_line_of_limited_length():
    assert str(api_module._unavailable(OSError("a\n  b" + "x" * 400))) == "a b" + "x" * 297
    assert str(api_module._unavailable(OSError())) == "OSError"
