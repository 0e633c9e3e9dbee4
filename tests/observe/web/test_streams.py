"""`kubectl exec` and `port-forward`, with a client of SPDY/3.1."""

from __future__ import annotations

import json
import socket
import struct
import zlib
from contextlib import closing, suppress

import attrs
import pytest

from devicemanager import ManualClock, Settings
from devicemanager.control import http_server
from devicemanager.core.responses import Responses
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.observe.web import spdy
from devicemanager.observe.web.nodes import NodesServer
from devicemanager.testing import pod_manifest
from tests.observe.web.conftest import fetch

EXEC = "/exec/default/train/main?command=ls&output=1&error=1"
FORWARD = "/portForward/default/train"
RESPONSES = Responses(exec_output="a\nb", exec_exit_code=0, port_forward="hello")


@attrs.define
class Client:
    """A connection that has switched to SPDY."""

    socket: socket.socket
    rest: bytes
    packer: object = attrs.field(factory=lambda: zlib.compressobj(zdict=spdy._DICTIONARY))
    streams: dict[int, bytes] = attrs.field(factory=dict)
    ended: set[int] = attrs.field(factory=set)
    pings: list[bytes] = attrs.field(factory=list)

    def control(self, kind, body, flags=0):
        self.socket.sendall(self.frame(kind, body, flags))

    def frame(self, kind, body, flags=0):
        return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body

    def opening(self, id_, *, ended=False, **headers):
        text = struct.pack(">I", len(headers))
        for name, value in headers.items():
            text += struct.pack(">I", len(name)) + name.encode()
            text += struct.pack(">I", len(value)) + value.encode()
        packed = self.packer.compress(text) + self.packer.flush(zlib.Z_SYNC_FLUSH)
        return self.frame(1, struct.pack(">IIBB", id_, 0, 0, 0) + packed, flags=int(ended))

    def open(self, id_, **options):
        """Open a stream, and wait for the reply."""
        self.socket.sendall(self.opening(id_, **options))
        while id_ not in self.streams:
            self.read()

    def data(self, id_, data, *, ended=False):
        return struct.pack(">II", id_, int(ended) << 24 | len(data)) + data

    def send(self, id_, data, **options):
        self.socket.sendall(self.data(id_, data, **options))

    def read(self):
        """Read one frame."""
        first, second = struct.unpack(">II", self.take(8))
        body = self.take(second & 0xFFFFFF)
        if first == 0x80030002:
            self.streams[struct.unpack(">I", body[:4])[0]] = b""
        elif first == 0x80030006:
            self.pings.append(body)
        else:
            self.streams[first] += body
            if second >> 24:
                self.ended.add(first)

    def result(self, id_):
        """Return all data of a stream."""
        while id_ not in self.ended:
            self.read()
        return self.streams[id_]

    def take(self, count):
        while len(self.rest) < count:
            data = self.socket.recv(65536)
            assert data, "the server has closed the connection"
            self.rest += data
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken


@pytest.fixture
def node():
    with closing(InMemoryKubelet(Settings(node_name="n"), {}, clock=ManualClock(1000.0))) as made:
        made.admit(pod_manifest("train", {}, uid="train"))
        made.pod_store.known("train").responses = RESPONSES
        yield made


@pytest.fixture
def server(node):
    with NodesServer("127.0.0.1:0", lambda: {"n": node}) as server:
        yield server


@pytest.fixture
def upgrade(server):
    """Send a request with an upgrade, and return the client, or the response if it is rejected."""
    made = []

    def upgrade(path, version, more=b""):
        host, _, port = server.address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        made.append(connection)
        lines = f"POST {path} HTTP/1.1", "Host: any.example", "Connection: Upgrade"
        lines += "Upgrade: SPDY/3.1", f"X-Stream-Protocol-Version: {version}"
        connection.sendall("\r\n".join((*lines, "", "")).encode() + more)
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = connection.recv(65536)
            assert data
            answer += data
        head, _, rest = answer.partition(b"\r\n\r\n")
        if b" 101 " in head.splitlines()[0]:
            return Client(connection, rest)
        while data := connection.recv(65536):
            answer += data
        return answer.decode()

    yield upgrade
    for each in made:
        each.close()


def run(upgrade, path=EXEC):
    """Run a command; return its output, its errors and the reported status."""
    client = upgrade(path, "v5.channel.k8s.io, v4.channel.k8s.io")
    client.open(1, streamType="error")
    client.open(3, streamType="stdout")
    if "tty" not in path:
        client.open(5, streamType="stderr")
        assert client.result(5) == b""
    output = client.result(3).decode()
    return output, json.loads(client.result(1))


def test_exec_sends_the_output_and_the_exit_code(upgrade, node):
    assert run(upgrade) == ("a\nb\n", {"metadata": {}, "status": "Success"})
    assert run(upgrade, EXEC + "&tty=1")[0] == "a\r\nb\r\n"
    node.pod_store.known("train").responses = Responses(exec_output="", exec_exit_code=3)
    output, status = run(upgrade)
    assert (output, status["reason"]) == ("", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


def test_large_output_has_several_frames(upgrade, node):
    node.pod_store.known("train").responses = Responses(exec_output="x" * 100_000)
    assert run(upgrade)[0] == "x" * 100_000 + "\n"


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"any bytes", b"hello"),
        (b"", b"hello"),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
            b"Content-Length: 5\r\n\r\nhello",
        ),
    ],
)
def test_forwarded_connection_receives_the_text(upgrade, sent, received):
    client = upgrade(FORWARD, "portforward.k8s.io")
    for id_ in (1, 5):  # two connections, one after the other
        client.open(id_, ended=True, streamType="error", port="80", requestID=str(id_))
        client.open(id_ + 2, streamType="data", port="80", requestID=str(id_))
        assert client.result(id_) == b""
        client.send(id_ + 2, sent, ended=not sent)
        assert client.result(id_ + 2) == received


def test_pings_are_returned_and_the_client_can_close(upgrade):
    # The first frame comes together with the request.
    ping = struct.pack(">HHII", 0x8003, 6, 4, 7)
    client = upgrade(FORWARD, "portforward.k8s.io", ping)
    client.read()
    assert client.pings == [struct.pack(">I", 7)]
    client.control(7, struct.pack(">II", 0, 0))
    assert client.socket.recv(1) == b""


def test_server_stops_with_open_connections(upgrade, server):
    client = upgrade(FORWARD, "portforward.k8s.io")
    client.open(1, streamType="data")
    server.stop()
    assert client.socket.recv(1) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x03\x00\x01\x00\x00\x00\x0a" + b"\0" * 10,  # headers that are not compressed
        b"\x80\x03\x00\x01\x00\x00\x00\x02\0\0",  # too short
        b"\0\0\0\x01\x00\xff\xff\xff",  # a frame of 16 MiB
        b"\x80\x03\x00\x06\x00\x00\x00\x02\0\0",  # a ping that is too short
    ],
)
def test_invalid_frames_end_the_connection(upgrade, data):
    client = upgrade(FORWARD, "portforward.k8s.io")
    client.socket.sendall(data)
    with suppress(ConnectionResetError):
        assert client.socket.recv(1) == b""


def test_limits_of_a_connection():
    class Receiver:
        def opened(self, stream):
            pass

        def received(self, stream, data, *, is_last):
            pass

    def opening(packer, id_, size=0):
        text = struct.pack(">III", 1, 1, 0)[:8] + b"n" + struct.pack(">I", size) + b"x" * size
        packed = packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIH", id_, 0, 0) + packed
        return struct.pack(">HHI", 0x8003, 1, len(body)) + body

    def connection():
        packer = zlib.compressobj(zdict=spdy._DICTIONARY)
        return packer, spdy.Connection(Receiver(), lambda data: None)

    packer, made = connection()
    with pytest.raises(spdy.ProtocolError, match=r"^headers of more than 4096 bytes$"):
        made.receive(opening(packer, 1, 1 << 20))
    packer, made = connection()
    for id_ in range(1, 513, 2):
        made.receive(opening(packer, id_))
    with pytest.raises(spdy.ProtocolError, match=r"or 256 streams are open$"):
        made.receive(opening(packer, 513))
    assert zlib.adler32(spdy._DICTIONARY) == 0xE3C6A7C2  # of the protocol


def ping(number):
    return struct.pack(">HHII", 0x8003, 6, 4, number)


def test_paused_connection_handles_no_frame():
    written = []

    def write(data):
        written.append(data)
        made.pause()

    made = spdy.Connection(None, write)
    assert made.receive(ping(1) + ping(2) + ping(3))
    assert written == [ping(1)]
    assert not made.receive(ping(4))
    for number in (2, 3, 4):
        assert made.resume()
        assert written[-1] == ping(number)
    assert not made.resume()
    assert len(written) == 4


def test_writing_can_resume_the_connection():
    written = []

    def write(data):
        written.append(data)
        made.pause()
        made.resume()

    made = spdy.Connection(None, write)
    made.receive(ping(1) + ping(2))
    assert written == [ping(1), ping(2)]


def test_part_of_a_frame_completes_nothing():
    written = []
    made = spdy.Connection(None, written.append)
    parts = [bytes([byte]) for byte in ping(7)]
    assert [made.receive(part) for part in parts] == [False] * 11 + [True]
    assert written == [ping(7)]


def test_client_that_completes_no_frame_is_disconnected(upgrade, monkeypatch):
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.5)
    for first in (b"", ping(7)[:-1]):
        client = upgrade(FORWARD, "portforward.k8s.io", first)
        with suppress(ConnectionResetError):
            assert client.socket.recv(1) == b""


def test_responses_to_a_client_that_does_not_read_wait(upgrade, node):
    # More than the buffers of both sockets. The client must receive everything in the end.
    node.pod_store.known("train").responses = Responses(port_forward="x" * 200_000)
    client = upgrade(FORWARD, "portforward.k8s.io")
    ids = range(1, 200, 2)
    for id_ in ids:
        client.socket.sendall(client.opening(id_, streamType="data") + client.data(id_, b"x"))
    for id_ in ids:
        while id_ not in client.streams:
            client.read()
        assert len(client.result(id_)) == 200_000


@pytest.mark.parametrize(("name", "path"), [("exec", EXEC), ("port-forward", FORWARD)])
def test_pod_without_annotation_rejects(upgrade, node, name, path):
    node.pod_store.known("train").responses = None
    answer = upgrade(path, "v4.channel.k8s.io")
    assert answer.startswith("HTTP/1.1 501 ")
    assert answer.endswith(
        f"{name} is not available: containers of virtual nodes do not run, and the pod has no "
        f"annotation devicemanager.io/{name}\n"
    )


def test_other_requests_are_rejected(upgrade, server, node):
    # The texts of annotations are sent only after an upgrade, which a browser cannot do.
    answer = fetch(server.address, EXEC, {})
    assert (answer.status, answer.text) == (
        400,
        "expected an upgrade to SPDY/3.1 with the protocol v4.channel.k8s.io\n",
    )
    assert upgrade(EXEC, "v1.channel.k8s.io").startswith("HTTP/1.1 400 ")
    missing = upgrade(EXEC.replace("/train", "/gone"), "v4.channel.k8s.io")
    assert missing.endswith("pod 'default/gone' does not exist\n")
    unknown = upgrade(EXEC.replace("/main", "/x"), "v4.channel.k8s.io")
    assert unknown.endswith('container not found ("x")\n')


# -- frames, without sockets -----------------------------------------------------------------


class Seen:
    """Receiver that records what it gets, and ends the given streams."""

    def __init__(self, end=""):
        self.end = end
        self.seen = []

    def opened(self, stream):
        self.seen.append(("opened", stream.id, stream.kind))
        if self.end == "opened":
            stream.end(b"bye")

    def received(self, stream, data, *, is_last):
        self.seen.append((stream.id, data, is_last))
        if self.end == "received":
            stream.end(b"bye")


def connected(end=""):
    seen, written = Seen(end), []
    return Client(None, b""), seen, written, spdy.Connection(seen, written.append)


@pytest.mark.parametrize("ended", [False, True])
def test_stream_can_be_ended_when_it_is_opened(ended):
    client, seen, written, made = connected()
    assert made.receive(client.opening(1, ended=ended, streamType="stdin"))
    opened = ("opened", 1, "stdin")
    assert seen.seen == ([opened, (1, b"", True)] if ended else [opened])
    assert [frame[:4] for frame in written] == [b"\x80\x03\x00\x02"]
    # The server has not ended the stream, so its ID is in use.
    with pytest.raises(spdy.ProtocolError, match=r"^stream 1 is already open, or 256 streams"):
        made.receive(client.opening(1))


def test_only_the_first_bit_of_the_flags_ends_a_stream():
    client, seen, _, made = connected()
    made.receive(client.frame(1, client.opening(1)[8:], flags=2))
    made.receive(struct.pack(">II", 1, 2 << 24 | 1) + b"a")
    made.receive(struct.pack(">II", 1, 3 << 24 | 1) + b"b")
    assert seen.seen == [("opened", 1, ""), (1, b"a", False), (1, b"b", True)]


def test_data_after_the_end_of_a_stream_is_the_last():
    client, seen, _, made = connected()
    made.receive(client.opening(1) + client.data(1, b"a", ended=True) + client.data(1, b"b"))
    assert seen.seen[1:] == [(1, b"a", True), (1, b"b", True)]


@pytest.mark.parametrize("end", ["opened", "received"])
def test_stream_that_both_sides_have_ended_is_dropped(end):
    client, seen, written, made = connected(end)
    made.receive(client.opening(1, streamType="x") + client.data(1, b"a", ended=True))
    assert seen.seen == [("opened", 1, "x"), (1, b"a", True)]
    assert written[1:] == [b"\0\0\0\1\1\0\0\3bye"]
    # The data of a dropped stream is ignored, and its ID can be used again.
    made.receive(client.data(1, b"late"))
    assert len(seen.seen) == 2
    made.receive(client.opening(1, streamType="y"))
    assert seen.seen[-1] == ("opened", 1, "y")


def test_server_does_not_write_to_a_stream_that_the_client_has_reset():
    client, seen, written, made = connected("received")
    made.receive(client.opening(1) + client.opening(3))
    del written[:]
    made.receive(client.frame(3, struct.pack(">II", 1, 5)) + client.data(1, b"late"))
    made.receive(client.frame(3, struct.pack(">II", 9, 5)))  # of a stream that was never open
    made.send_data(1, b"lost")
    made.receive(client.data(3, b"a"))
    assert seen.seen[2:] == [(3, b"a", False)]
    assert written == [b"\0\0\0\3\1\0\0\3bye"]


@pytest.mark.parametrize("size", [0, 1, 1 << 15, (1 << 15) + 1, 3 << 15])
def test_response_has_frames_of_at_most_32_kib(size):
    client, _, written, made = connected()
    made.receive(client.opening(1))
    stream = made._open[1]
    del written[:]
    data = bytes(number % 251 for number in range(size))
    stream.end(data)
    assert stream.has_ended
    stream.end(b"again")
    heads = [struct.unpack(">II", frame[:8]) for frame in written]
    assert b"".join(frame[8:] for frame in written) == data
    assert len(written) == max(1, -(-size // (1 << 15)))
    assert [(id_, second >> 24) for id_, second in heads] == [
        (1, int(frame is written[-1])) for frame in written
    ]
    assert all(
        second & 0xFFFFFF == len(frame) - 8
        for (_, second), frame in zip(heads, written, strict=True)
    )


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"streamType": "stdout"}, "stdout"),
        ({"STREAMTYPE": "a" * 16}, "a" * 16),
        ({"streamtype": "a" * 17}, "a" * 16),
        ({"other": "x"}, ""),
        ({"other": "x", "streamType": "error", "port": "80"}, "error"),
    ],
)
def test_kind_of_a_stream_is_a_header(headers, kind):
    client, seen, _, made = connected()
    made.receive(client.opening(7, **headers))
    assert seen.seen == [("opened", 7, kind)]


def test_replies_have_no_headers():
    client, _, written, made = connected()
    made.receive(client.opening(1) + client.opening(3))
    unpacker = zlib.decompressobj(zdict=spdy._DICTIONARY)
    for id_, frame in zip((1, 3), written, strict=True):
        assert frame[:8] == struct.pack(">HHI", 0x8003, 2, len(frame) - 8)
        assert frame[8:12] == struct.pack(">I", id_)
        assert unpacker.decompress(frame[12:]) == b"\0\0\0\0"


def test_client_can_end_the_connection():
    client, seen, written, made = connected()
    made.receive(client.frame(4, b"") + client.frame(8, b""))  # settings: ignored
    assert not made.is_over
    made.receive(client.frame(7, struct.pack(">II", 0, 0)))
    assert made.is_over
    assert (seen.seen, written) == ([], [])


@pytest.mark.parametrize(("size", "is_valid"), [(1 << 17, True), ((1 << 17) + 1, False)])
def test_frame_of_a_client_has_at_most_128_kib(size, is_valid):
    client, seen, _, made = connected()
    made.receive(client.opening(1))
    if is_valid:
        made.receive(client.data(1, b"x" * size))
        assert len(seen.seen[1][1]) == size
    else:
        with pytest.raises(spdy.ProtocolError) as raised:
            made.receive(client.data(1, b"x" * size)[:8])
        assert str(raised.value) == "frame of 131073 bytes, limit 131072"
