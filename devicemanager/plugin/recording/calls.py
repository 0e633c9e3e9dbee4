"""One recorded call, and its line in the recording.

The line has each message twice: as bytes, which a replay uses, and as decoded data, for people.
Methods that the API does not define are also recorded; their messages cannot be decoded.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from devicemanager.events.calls import rendering
from devicemanager.plugin.recording.errors import RecordingError

__all__ = [
    "LIST_AND_WATCH",
    "OK",
    "REGISTER",
    "SCHEMA",
    "EndedBy",
    "RecordedCall",
    "call_from_line",
    "is_stream",
    "line_of",
    "request_data",
]

SCHEMA = "devicemanager.recording/v1"
"""Name and version of the recording's format: the value of ``schema`` in the first line."""

OK = "OK"
"""Status code of a call that succeeded."""

REGISTER = "Register"
LIST_AND_WATCH = "ListAndWatch"
_STREAMS = (LIST_AND_WATCH, "NodeWatchResources")


class EndedBy(StrEnum):
    """What ended a call: the plugin, the kubelet or the recorder."""

    PLUGIN = "plugin"
    KUBELET = "kubelet"
    RECORDER = "recorder"
    """The recorder stopped, or closed the connection, while the call was in progress."""


@attrs.frozen(kw_only=True)
class RecordedCall:
    """Recorded unary call, message of a stream such as ListAndWatch, or end of a stream."""

    number: int
    """Number of the entry, from 1, in the order in which calls ended and messages arrived."""
    time: float
    """Time when the call began or the stream message arrived, in seconds since the epoch."""
    kubelet: int
    """Number of the kubelet instance, from 1."""
    registration: int
    """Number, from 1, of the Register call that led to this call. For a Register call, its own
    number."""
    resource: str
    plugin: str
    """Endpoint in the plugin's Register call: the file name of its socket.

    For a DRA driver, it is the file name of the registration socket.
    """
    direction: str
    """``to-plugin``, or ``to-kubelet`` for Register."""
    rpc: str
    """Name of the method, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    response_bytes: bytes | None = attrs.field(repr=False, default=None)
    """Serialized response; None if there was no response."""
    code: str = OK
    """Name of the gRPC status code, spelled as in Go: ``OK``, ``DeadlineExceeded``."""
    message: str = ""
    """Message of the gRPC status; empty with ``OK``."""
    duration: float = 0.0
    """Seconds from the request to the end of the call; for a stream message, to its arrival."""
    stream: int | None = None
    """Number of the stream in the recording, from 1; None for unary calls."""
    stream_message: int | None = None
    """Number of the message in its stream, from 1; None for a unary call or the end of a stream."""
    ended_by: EndedBy | None = None
    """What ended the call; None for a stream message, because its stream continues."""
    redacted: tuple[str, ...] = ()
    """Names of environment variables whose values in the response are ``REDACTED``."""

    @property
    def request(self) -> dict[str, Any]:
        """Decoded request, with the field names of the .proto file.

        Fields with default values are included; numbers are not converted to strings. Bytes that
        cannot be decoded become ``{"undecodable": "<base64>"}``.
        """
        return request_data(self.rpc, self.request_bytes)

    @property
    def response(self) -> dict[str, Any] | None:
        """Decoded response, in the form of ``request``; None if there was no response."""
        response = self.response_bytes
        if response is None:
            return None
        known = self.rpc in rendering.RPCS
        return rendering.response_data(self.rpc, response) if known else _undecodable(response)


def is_stream(rpc: str) -> bool:
    """True if a method may return several messages; True also for unknown methods."""
    return rpc in _STREAMS or rpc not in rendering.RPCS


def request_data(rpc: str, request: bytes) -> dict[str, Any]:
    """Return a serialized request in decoded form, as in ``RecordedCall.request``."""
    return rendering.request_data(rpc, request) if rpc in rendering.RPCS else _undecodable(request)


def _undecodable(content: bytes) -> dict[str, Any]:
    return {"undecodable": base64.b64encode(content).decode()}


def line_of(call: RecordedCall) -> str:
    """Return a call as a line of the recording (JSON), without the line break."""
    # The decoded data is for people and tools such as jq; `call_from_line` reads only the bytes.
    response = call.response_bytes
    data = {
        "number": call.number,
        # Microseconds are enough, and shorter than all digits of a float.
        "time": round(call.time, 6),
        "kubelet": call.kubelet,
        "registration": call.registration,
        "resource": call.resource,
        "plugin": call.plugin,
        "direction": call.direction,
        "rpc": call.rpc,
        "stream": call.stream,
        "stream_message": call.stream_message,
        "request": call.request,
        "response": call.response,
        "code": call.code,
        "message": call.message,
        "duration": round(call.duration, 6),
        "ended_by": call.ended_by,
        "redacted": list(call.redacted),
        "request_bytes": base64.b64encode(call.request_bytes).decode(),
        "response_bytes": None if response is None else base64.b64encode(response).decode(),
    }
    return json.dumps(data)


def call_from_line(data: Mapping[str, Any]) -> RecordedCall:
    """Return the call that a line of the recording describes. Ignore unknown keys.

    ``data`` is the parsed line. Raises RecordingError if a key is missing or has an invalid value.
    """
    ended_by = data.get("ended_by")
    response = data.get("response_bytes")
    try:
        return RecordedCall(
            number=_get(int, data, "number"),
            time=float(_get(int | float, data, "time")),
            kubelet=_get(int, data, "kubelet"),
            registration=_get(int, data, "registration"),
            resource=_get(str, data, "resource"),
            plugin=_get(str, data, "plugin"),
            direction=_get(str, data, "direction"),
            rpc=_get(str, data, "rpc"),
            request_bytes=base64.b64decode(_get(str, data, "request_bytes"), validate=True),
            response_bytes=None if response is None else base64.b64decode(response, validate=True),
            code=_get(str, data, "code"),
            message=_get(str, data, "message"),
            duration=float(_get(int | float, data, "duration")),
            stream=_get(int | None, data, "stream"),
            stream_message=_get(int | None, data, "stream_message"),
            ended_by=None if ended_by is None else EndedBy(ended_by),
            redacted=tuple(map(str, data.get("redacted", ()))),
        )
    except (binascii.Error, ValueError, TypeError, OverflowError) as error:
        raise RecordingError(f"not a recorded call: {error}") from error


def _get(kind: Any, data: Mapping[str, Any], key: str) -> Any:
    value = data.get(key)
    if not isinstance(value, kind):
        name = getattr(kind, "__name__", kind)
        raise RecordingError(f"not a recorded call: {key} is {value!r:.200}: expected {name}")
    return value
