"""Messages of the device plugin API as bytes, built fast, right or wrong."""

from __future__ import annotations

from collections.abc import Iterable

LIMIT = 4 * 1024 * 1024
"""The largest message that gRPC takes unless it is told otherwise."""


def varint(value: int) -> bytes:
    """A number as protobuf writes it; negative ones take ten bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


_HEALTHY = field(2, b"Healthy")


def node(id_: int) -> bytes:
    """A NUMANode in the topology of a device."""
    return field(1, varint(1 << 3) + varint(id_))


def device(id_: bytes, nodes: Iterable[int] = (), health: bytes = _HEALTHY) -> bytes:
    """A Device as it stands in a list."""
    topology = b"".join(map(node, nodes))
    return field(1, field(1, id_) + health + (field(3, topology) if topology else b""))


def filled(piece: bytes, limit: int = LIMIT) -> bytes:
    """The same piece as often as it fits."""
    return piece * (limit // len(piece))


def cut(pieces: Iterable[bytes], limit: int = LIMIT) -> bytes:
    """As many of the pieces as fit."""
    out = bytearray()
    for piece in pieces:
        if len(out) + len(piece) > limit:
            break
        out += piece
    return bytes(out)
