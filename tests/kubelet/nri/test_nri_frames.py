"""The bytes of an NRI connection."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
