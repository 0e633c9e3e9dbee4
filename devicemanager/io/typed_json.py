"""Decode JSON and Python values into types, safely in several threads.

msgspec 0.22 builds its description of a type at the first use of the type, without a lock. If two
threads use a type for the first time at once, the process crashes. Here, one thread at a time
builds the description, before the first value is decoded. Encoding does not build descriptions.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(data: bytes | bytearray | str, kind: type[T]) -> T:
    """Decode the JSON text ``data`` into a value of the type ``kind``.

    Raises ``msgspec.DecodeError`` if the text is not JSON, and ``msgspec.ValidationError`` if the
    value does not have this type. Raises RecursionError if the value is nested too deeply.
    """
    value: T = _decoder(kind).decode(data)
    return value


def convert(value: object, kind: type[T], *, strict: bool = True) -> T:
    """Convert a Python value to the type ``kind``.

    If ``strict`` is false, text such as ``"8"`` also counts as a number. Raises
    ``msgspec.ValidationError`` if the value cannot be converted.
    """
    # Builds the description of the type, so that ``msgspec.convert`` does not build it without a
    # lock.
    _decoder(kind)
    return msgspec.convert(value, kind, strict=strict)


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    # The usual case needs no lock.
    decoder = _decoders.get(kind)
    if decoder is None:
        with _lock:
            # Another thread may have built the decoder while this thread waited for the lock.
            decoder = _decoders.get(kind)
            if decoder is None:
                decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder
