"""One call between the kubelet and a plugin."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from devicemanager.core.printable import listed, printable

__all__ = ["OK", "Call", "Direction", "call_data"]

OK = "OK"
"""The status code of a call that succeeded."""

_SHOWN_IDS = 8
_LONGEST_LINE = 300


class Direction(StrEnum):
    """Where the request goes."""

    TO_PLUGIN = "to-plugin"
    TO_KUBELET = "to-kubelet"


@attrs.frozen
class Call:
    """One RPC, or one message of a ListAndWatch stream, as the kubelet's side saw it.

    A stream has an entry for each list, and one for its end, which has no response.
    """

    number: int = attrs.field(eq=False)
    """Calls of one kubelet are numbered from 1, in the order in which they ended."""
    time: float
    """When the call began, or when this list came: seconds since the epoch, by the
    kubelet's clock."""
    resource: str | None
    """The resource that the plugin serves; cut if it is too long for a name. None for a
    GetInfo that failed."""
    plugin: str
    """The plugin's endpoint: the file name of its socket, or the path of one that the
    watcher found."""
    direction: Direction
    rpc: str
    """The method's name, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    response_bytes: bytes | None = attrs.field(repr=False)
    """None if there was no response."""
    code: str = OK
    """The status code's name as Go spells it: ``OK``, ``DeadlineExceeded``."""
    message: str = ""
    """The status's message; empty with ``OK``."""
    duration: float = 0.0
    """Seconds from the request until the answer, by the machine's clock; of a list, since
    the stream was opened."""
    stream_message: int | None = None
    """Which list of its stream this is, from 1; None for anything else."""
    after_event: int = attrs.field(default=0, eq=False, repr=False)
    """The number of the latest event when the call ended: its place among the events."""
    fault: str = ""
    """Which fault on purpose had a part in it, such as ``fault 3, fail-call``; else empty."""

    @property
    def request(self) -> dict[str, Any]:
        """The request as data: the fields of the .proto file by their names there, those
        with default values included. Bytes that are no such message are
        ``{"undecodable": "<base64>"}``."""
        from devicemanager.events.calls.rendering import request_data

        return request_data(self.rpc, self.request_bytes)

    @property
    def response(self) -> dict[str, Any] | None:
        """The response as data, in the form of ``request``; None if there was none."""
        from devicemanager.events.calls.rendering import response_data

        return None if self.response_bytes is None else response_data(self.rpc, self.response_bytes)

    @property
    def device_ids(self) -> frozenset[str]:
        """The devices that the request names, over all its containers: of Allocate and
        PreStartContainer those asked for, of GetPreferredAllocation those available."""
        from devicemanager.events.calls.rendering import device_ids

        return device_ids(self.rpc, self.request_bytes)

    def __str__(self) -> str:
        """One line for people, cut if it is very long."""
        asked = f" {listed(sorted(self.device_ids), _SHOWN_IDS)}" if self.device_ids else ""
        what = self.rpc if self.stream_message is None else f"{self.rpc} list {self.stream_message}"
        who = self.plugin if self.resource is None else f"{self.resource} ({self.plugin})"
        seconds = f"after {self.duration:.3f} s"
        text = f"call {self.number}: {what} {who}{asked}: {self._outcome()} {seconds}"
        return printable(text + (f" [{self.fault}]" if self.fault else ""), _LONGEST_LINE)

    def _outcome(self) -> str:
        if self.message:
            return f"{self.code}: {self.message}"
        if self.stream_message is None or self.response is None:
            return self.code
        return f"{len(self.response.get('devices', ()))} devices"


def call_data(call: Call) -> dict[str, Any]:
    """A call as plain data for JSON; its shape stands in docs/json.md."""
    return {
        "number": call.number,
        "time": call.time,
        "resource": call.resource,
        "plugin": call.plugin,
        "direction": call.direction.value,
        "rpc": call.rpc,
        "stream_message": call.stream_message,
        "request": call.request,
        "response": call.response,
        "code": call.code,
        "message": call.message,
        "duration": call.duration,
        "after_event": call.after_event,
        "fault": call.fault,
    }
