"""One recorded call, and its line in the file.

The line has the messages twice: as bytes, which count, and as data, for people. Methods that the
API does not define are recorded as well; their messages have no data.
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
"""The name and version of the file's format, in the ``schema`` of its first line."""

OK = "OK"
"""The status code of a call that succeeded."""

REGISTER = "Register"
LIST_AND_WATCH = "ListAndWatch"


class EndedBy(StrEnum):
    """Who ended a call."""

    PLUGIN = "plugin"
    KUBELET = "kubelet"
    RECORDER = "recorder"
    """The call was in progress when the recording ended."""


@attrs.frozen(kw_only=True)
class RecordedCall:
    """An RPC, a message of a ListAndWatch stream, or the end of such a stream."""

    number: int
    """Number of the call, from 1, in the order in which calls ended."""
    time: float
    """When the call began, or this list arrived: seconds since the epoch."""
    kubelet: int
    """Number of the kubelet instance, from 1."""
    registration: int
    """Number of the Register call, from 1, that led to this call, or that this call is."""
    resource: str
    plugin: str
    """The plugin's endpoint, as in its Register: the file name of its socket."""
    direction: str
    """``to-plugin``, or ``to-kubelet`` for Register."""
    rpc: str
    """Name of the method, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    response_bytes: bytes | None = attrs.field(repr=False, default=None)
    """None if there was no response."""
    code: str = OK
    """Name of the status code, as in Go: ``OK``, ``DeadlineExceeded``."""
    message: str = ""
    """The status's message; empty with ``OK``."""
    duration: float = 0.0
    """Seconds from request to response; for a list, since the stream was opened."""
    stream: int | None = None
    """Number of the ListAndWatch stream, from 1; None for other calls."""
    stream_message: int | None = None
    """Number of the list in its stream, from 1; None for the end, and for other calls."""
    ended_by: EndedBy | None = None
    """Who ended the call; None for a list, because its stream continues."""
    redacted: tuple[str, ...] = ()
    """Environment variables whose values in the response are ``REDACTED``."""

    @property
    def request(self) -> dict[str, Any]:
        """The request as data, with the field names of the .proto file.

        Fields with default values are included; numbers are numbers. Bytes that cannot be decoded
        are ``{"undecodable": "<base64>"}``.
        """
        return request_data(self.rpc, self.request_bytes)

    @property
    def response(self) -> dict[str, Any] | None:
        """The response as data, in the form of ``request``; None if there was none."""
        response = self.response_bytes
        if response is None:
            return None
        known = self.rpc in rendering.RPCS
        return rendering.response_data(self.rpc, response) if known else _undecodable(response)


def is_stream(rpc: str) -> bool:
    """True if a method can return any number of messages; unknown methods may do so."""
    return rpc == LIST_AND_WATCH or rpc not in rendering.RPCS


def request_data(rpc: str, request: bytes) -> dict[str, Any]:
    """Return a request as data; see ``RecordedCall.request``."""
    return rendering.request_data(rpc, request) if rpc in rendering.RPCS else _undecodable(request)


def _undecodable(content: bytes) -> dict[str, Any]:
    return {"undecodable": base64.b64encode(content).decode()}


def line_of(call: RecordedCall) -> str:
    """Return the call as a line of the file, without the line break."""
    # The data is for people and tools such as jq; `call_from_line` reads only the bytes.
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
    """Return the call of a parsed line. Unknown keys are ignored. Raises RecordingError."""
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
        raise RecordingError(f"not a recorded call: {key} is {value!r:.200}")
    return value
