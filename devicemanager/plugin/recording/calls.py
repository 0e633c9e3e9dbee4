"""One recorded call, and the line of the file that holds it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.messages import (
    LIST_AND_WATCH,
    is_known,
    request_data,
    response_data,
)

__all__ = ["OK", "SCHEMA", "EndedBy", "RecordedCall", "call_from_line", "is_stream", "line_of"]

SCHEMA = "devicemanager.recording/v1"
"""The name and version of the file's format, in the ``schema`` of its first line."""

OK = "OK"
"""The status code of a call that succeeded."""


class EndedBy(StrEnum):
    """Who ended a call."""

    PLUGIN = "plugin"
    KUBELET = "kubelet"
    RECORDER = "recorder"
    """It was under way when the recording ended."""


@attrs.frozen(kw_only=True)
class RecordedCall:
    """One RPC, or one message of a ListAndWatch stream, or the end of such a stream."""

    number: int
    """Calls of a recording are numbered from 1, in the order in which they ended."""
    time: float
    """When the call began, or when this list came: seconds since the epoch."""
    kubelet: int
    """Which kubelet of the recording, from 1: another one after each restart."""
    registration: int
    """Which Register of the recording, from 1, made the connection; that call has it, too."""
    resource: str
    plugin: str
    """The plugin's endpoint as it registered it: the file name of its socket."""
    direction: str
    """``to-plugin``, or ``to-kubelet`` for Register."""
    rpc: str
    """The method's name, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    response_bytes: bytes | None = attrs.field(repr=False, default=None)
    """None if there was no response."""
    code: str = OK
    """The status code's name as Go spells it: ``OK``, ``DeadlineExceeded``."""
    message: str = ""
    """The status's message; empty with ``OK``."""
    duration: float = 0.0
    """Seconds from the request until the answer; of a list, since the stream was opened."""
    stream: int | None = None
    """Which ListAndWatch stream of the recording this is, from 1; None for anything else."""
    stream_message: int | None = None
    """Which list of its stream this is, from 1; None for its end, and for anything else."""
    ended_by: EndedBy | None = None
    """None for a list: its stream goes on."""
    redacted: tuple[str, ...] = ()
    """The environment variables whose values in the response are ``REDACTED``."""

    @property
    def request(self) -> dict[str, Any]:
        """The request as data: the fields of the .proto file by their names there, those
        with default values included, numbers as numbers. ``{"undecodable": "<base64>"}`` for
        bytes that are no such message."""
        return request_data(self.rpc, self.request_bytes)

    @property
    def response(self) -> dict[str, Any] | None:
        """The response as data, in the form of ``request``; None if there was none."""
        response = self.response_bytes
        return None if response is None else response_data(self.rpc, response)


def is_stream(rpc: str) -> bool:
    """Whether a method may answer with any number of messages, as far as anybody knows."""
    return rpc == LIST_AND_WATCH or not is_known(rpc)


def line_of(call: RecordedCall) -> str:
    """The call as a line of the file, without its end."""
    response = call.response_bytes
    data = {
        "number": call.number,
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
    """The call of a line that was read as JSON. The bytes count, not the data beside them;
    keys that are not known are left out. Raises RecordingError."""
    ended_by = data.get("ended_by")
    response = data.get("response_bytes")
    try:
        return RecordedCall(
            number=_of(int, data, "number"),
            time=float(_of(int | float, data, "time")),
            kubelet=_of(int, data, "kubelet"),
            registration=_of(int, data, "registration"),
            resource=_of(str, data, "resource"),
            plugin=_of(str, data, "plugin"),
            direction=_of(str, data, "direction"),
            rpc=_of(str, data, "rpc"),
            request_bytes=base64.b64decode(_of(str, data, "request_bytes"), validate=True),
            response_bytes=None if response is None else base64.b64decode(response, validate=True),
            code=_of(str, data, "code"),
            message=_of(str, data, "message"),
            duration=float(_of(int | float, data, "duration")),
            stream=_of(int | None, data, "stream"),
            stream_message=_of(int | None, data, "stream_message"),
            ended_by=None if ended_by is None else EndedBy(ended_by),
            redacted=tuple(map(str, data.get("redacted", ()))),
        )
    except (binascii.Error, ValueError, TypeError, OverflowError) as error:
        raise RecordingError(f"not a recorded call: {error}") from error


def _of(kind: Any, data: Mapping[str, Any], key: str) -> Any:
    value = data.get(key)
    if not isinstance(value, kind):
        raise RecordingError(f"not a recorded call: {key} is {value!r:.200}")
    return value
