"""The bytes of an NRI connection: ttrpc messages in a multiplexed stream. Does no I/O.

Each side of a connection serves one service, and each service has a separate channel. A frame of
the multiplexer has a channel and some bytes; a message of ttrpc can be longer than a frame.

Sources: pkg/net/multiplex of github.com/containerd/nri v0.11, PROTOCOL.md of
github.com/containerd/ttrpc v1.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import attrs

__all__ = ["PLUGIN", "REQUEST", "RESPONSE", "RUNTIME", "Decoder", "FrameError", "Message", "encode"]

PLUGIN: Final = 1
"""Channel number of the service ``Plugin``, which the plugin serves."""
RUNTIME: Final = 2
"""Channel number of the service ``Runtime``, which the runtime serves."""
REQUEST: Final = 1
RESPONSE: Final = 2

_FRAME = struct.Struct(">II")  # channel, length
_HEADER = struct.Struct(">IIBB")  # length, stream, kind, flags
# The reader of ttrpc in Go has a buffer of this size, and a frame must fit into it.
_LARGEST_FRAME = 4096
_LARGEST_MESSAGE = 4 << 20


class FrameError(Exception):
    """Error of received bytes that are invalid on an NRI connection; its text says why."""


@attrs.frozen
class Message:
    """A request or a response. A response has the stream number of its request."""

    channel: int
    stream: int
    kind: int
    payload: bytes


def encode(message: Message) -> bytes:
    """Return the bytes of a message, split into frames."""
    header = _HEADER.pack(len(message.payload), message.stream, message.kind, 0)
    whole = header + message.payload
    chunks = [whole[at : at + _LARGEST_FRAME] for at in range(0, len(whole), _LARGEST_FRAME)]
    return b"".join(_FRAME.pack(message.channel, len(chunk)) + chunk for chunk in chunks)


class Decoder:
    """Decoder that collects received bytes into messages."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._channels = {PLUGIN: bytearray(), RUNTIME: bytearray()}

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add received bytes, and yield the messages that are now complete.

        Raises FrameError for a message that is too large.
        """
        self._received += data
        while (frame := _first(self._received, _FRAME, 1)) is not None:
            (channel, _), content = frame
            if channel in self._channels:
                yield from self._messages(channel, content)

    def _messages(self, channel: int, content: bytes) -> Iterator[Message]:
        collected = self._channels[channel]
        collected += content
        while (found := _first(collected, _HEADER, 0)) is not None:
            (_, stream, kind, _), payload = found
            yield Message(channel, stream, kind, payload)


def _first(
    collected: bytearray, header: struct.Struct, length: int
) -> tuple[tuple[int, ...], bytes] | None:
    """Remove and return the first header and its content; None if they are incomplete.

    ``length`` is the index of the header's field that has the length of the content.
    """
    if len(collected) < header.size:
        return None
    fields = header.unpack_from(collected)
    end = header.size + fields[length]
    # A frame can contain a whole message with its header.
    if fields[length] > _LARGEST_MESSAGE + (_HEADER.size if header is _FRAME else 0):
        raise FrameError(
            f"message of {fields[length]} bytes is too large: the limit is {_LARGEST_MESSAGE} bytes"
        )
    if len(collected) < end:
        return None
    content = bytes(collected[header.size : end])
    del collected[:end]
    return fields, content
