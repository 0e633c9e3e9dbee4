"""The bytes of an NRI connection."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.kubelet.nri.connection import Connection, Disconnected
from devicemanager.kubelet.nri.frames import (
    PLUGIN,
    REQUEST,
    RESPONSE,
    RUNTIME,
    Decoder,
    FrameError,
    Message,
    encode,
)
from devicemanager.kubelet.nri.plugins import NriPlugin
from protos import nri_v1alpha1 as nri
from protos import ttrpc


def test_bytes_are_those_of_the_go_library() -> None:
    """Recorded from a connection of github.com/containerd/nri v0.11."""
    message = Message(RUNTIME, 1, REQUEST, b"abc")
    assert encode(message).hex() == "000000020000000d00000003000000010100616263"


messages = st.builds(
    Message,
    channel=st.sampled_from([PLUGIN, RUNTIME]),
    stream=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([REQUEST, RESPONSE]),
    payload=st.binary() | st.integers(4080, 9000).map(bytes),
)


@given(st.lists(messages, max_size=5), st.integers(1, 5000))
def test_messages_survive_any_division_into_reads(sent: list[Message], size: int) -> None:
    whole = b"".join(map(encode, sent))
    decoder = Decoder()
    reads = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert [each for read in reads for each in decoder.feed(read)] == sent


def test_long_messages_have_frames_that_fit_into_the_buffer_of_a_plugin() -> None:
    frame = encode(Message(PLUGIN, 1, REQUEST, bytes(10_000)))
    assert int.from_bytes(frame[4:8]) == 4096


def test_unknown_channels_are_ignored() -> None:
    frame = bytearray(encode(Message(PLUGIN, 1, REQUEST, b"abc")))
    frame[3] = 7
    assert list(Decoder().feed(bytes(frame))) == []


def test_oversized_messages_are_an_error() -> None:
    with pytest.raises(
        FrameError, match="message of 4294967295 bytes is too large: the limit is 4194304 bytes"
    ):
        list(Decoder().feed(b"\0\0\0\1\xff\xff\xff\xff"))


def test_limit_is_exact() -> None:
    most = 4 << 20
    message = struct.pack(">IIBB", most, 1, REQUEST, 0) + bytes(most)
    frame = struct.pack(">II", PLUGIN, len(message)) + message
    assert [len(each.payload) for each in Decoder().feed(frame)] == [most]
    larger = struct.pack(">IIIIBB", PLUGIN, 10, most + 1, 1, REQUEST, 0)
    with pytest.raises(FrameError, match="message of 4194305 bytes is too large"):
        list(Decoder().feed(larger))


@pytest.mark.parametrize(
    ("channel", "number", "kind", "type_"), [(PLUGIN, 1, REQUEST, 1), (RUNTIME, 2, RESPONSE, 2)]
)
def test_bytes_of_a_short_message(channel: int, number: int, kind: int, type_: int) -> None:
    """The numbers are those of NRI's multiplexer and of ttrpc's protocol."""
    assert encode(Message(channel, 5, kind, b"abc")) == bytes(
        [0, 0, 0, number, 0, 0, 0, 13, 0, 0, 0, 3, 0, 0, 0, 5, type_, 0, *b"abc"]
    )


def test_calls_of_a_client_have_odd_streams_and_name_their_method() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(ours, {}, serves="Runtime", calls="Plugin")
        for seconds in (0.001, 0.002):
            with pytest.raises(Disconnected, match=rf"^no response within {seconds:g} s$"):
                connection.call("Synchronize", nri.SynchronizeRequest(more=True), seconds)
        sent = list(Decoder().feed(theirs.recv(1 << 16)))
        assert [(each.channel, each.stream, each.kind) for each in sent] == [
            (PLUGIN, 1, REQUEST),
            (PLUGIN, 3, REQUEST),
        ]
        for message, seconds in zip(sent, (0.001, 0.002), strict=True):
            assert ttrpc.Request.FromString(message.payload) == ttrpc.Request(
                service="nri.pkg.api.v1alpha1.Plugin",
                method="Synchronize",
                payload=nri.SynchronizeRequest(more=True).SerializeToString(),
                timeout_nano=int(seconds * 1e9),
            )
        connection.close()
        connection.close()
        with pytest.raises(Disconnected, match=r"^the connection has ended$"):
            connection.call("Synchronize", nri.SynchronizeRequest(), 1)


@pytest.mark.parametrize(
    ("service", "method", "payload", "code", "text"),
    [
        ("Runtime", "RegisterPlugin", b"", 0, ""),
        ("Plugin", "RegisterPlugin", b"", 12, "unknown method RegisterPlugin"),
        ("Runtime", "UpdateContainers", b"", 12, "unknown method UpdateContainers"),
        ("Runtime", "Nothing", b"", 12, "unknown method Nothing"),
        ("Runtime", "RegisterPlugin", nri.RegisterPluginRequest(plugin_idx="x").SerializeToString(),
         2, "bad index x"),
        ("Runtime", "RegisterPlugin", b"\xff", 3, None),
    ],
)  # fmt: skip
def test_call_of_a_plugin_is_answered_with_a_status(
    service: str, method: str, payload: bytes, code: int, text: str | None
) -> None:
    def register(request: nri.RegisterPluginRequest) -> nri.Empty:
        if request.plugin_idx:
            raise ValueError(f"bad index {request.plugin_idx}")
        return nri.Empty()

    request = ttrpc.Request(service=f"nri.pkg.api.v1alpha1.{service}", method=method)
    request.payload = payload
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(
            ours, {"RegisterPlugin": register}, serves="Runtime", calls="Plugin"
        )
        theirs.sendall(encode(Message(RUNTIME, 5, REQUEST, request.SerializeToString())))
        theirs.shutdown(socket.SHUT_WR)
        connection.serve()
        (answer,) = Decoder().feed(theirs.recv(1 << 16))
    assert (answer.channel, answer.stream, answer.kind) == (RUNTIME, 5, RESPONSE)
    status = ttrpc.Response.FromString(answer.payload).status
    assert status.code == code
    assert status.message == text if text is not None else status.message


def test_plugin_without_an_event_mask_gets_all_events() -> None:
    events = range(1, 20)
    plugin = NriPlugin(None)  # type: ignore[arg-type]
    assert all(plugin.wants(each) for each in events)
    assert not plugin.registered.is_set()
    plugin.index, plugin.base = "00", "cpu"
    assert plugin.name == "00-cpu"
    plugin.events = 1 << (3 - 1) | 1 << (1 - 1)
    assert [each for each in events if plugin.wants(each)] == [1, 3]
