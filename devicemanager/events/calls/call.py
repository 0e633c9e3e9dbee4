"""One entry of the call log, and its JSON form."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from devicemanager.core.printable import listed, printable

__all__ = ["OK", "Call", "Direction", "call_data"]

OK = "OK"
"""Status code of a successful call."""

_SHOWN_IDS = 8
_LONGEST_LINE = 300


class Direction(StrEnum):
    """Direction of a request: from the kubelet to a plugin, or from a plugin to the kubelet."""

    TO_PLUGIN = "to-plugin"
    TO_KUBELET = "to-kubelet"


@attrs.frozen
class Call:
    """One RPC, or one message of a ListAndWatch stream, as the kubelet saw it.

    A stream has one ``Call`` for each device list, and one without a response for its end.
    """

    number: int = attrs.field(eq=False)
    """Number of the call, from 1. A kubelet's calls are numbered in the order in which they end."""
    time: float
    """When the call started, or when this device list arrived: seconds since the epoch, by the
    kubelet's clock."""
    resource: str | None
    """Name of the plugin's resource or of the DRA driver, cut if it is too long. None for a failed
    GetInfo call, which would have returned the name."""
    plugin: str
    """The plugin's endpoint: the file name of its socket, or the socket path if the plugin
    watcher found it."""
    direction: Direction
    rpc: str
    """Method name, such as ``Allocate``."""
    request_bytes: bytes = attrs.field(repr=False)
    response_bytes: bytes | None = attrs.field(repr=False)
    """Encoded response; None if there was no response."""
    code: str = OK
    """Status code as Go spells it: ``OK``, ``DeadlineExceeded``."""
    message: str = ""
    """Status message; empty with ``OK``."""
    duration: float = 0.0
    """Seconds from the request to the response, or, for a device list, since the stream was opened.
    Measured in real time, not by the kubelet's clock."""
    stream_message: int | None = None
    """Number of this device list in its stream, from 1; None if the call is not a device list."""
    after_event: int = attrs.field(default=0, eq=False, repr=False)
    """Number of the latest event when the call ended. With it, calls and events can be sorted
    together."""
    fault: str = ""
    """IDs and kinds of the injected faults that affected the call, such as ``fault 3, fail-call``,
    separated by semicolons. Empty if no fault affected the call."""

    @property
    def request(self) -> dict[str, Any]:
        """The request as a dict, with the field names of the .proto file.

        Fields with default values are included. The result for bytes that cannot be decoded is
        ``{"undecodable": "<base64>"}``.
        """
        # Imported here, as below: decoding loads the protobuf messages.
        from devicemanager.events.calls.rendering import request_data

        return request_data(self.rpc, self.request_bytes)

    @property
    def response(self) -> dict[str, Any] | None:
        """The response as a dict, in the same form as ``request``; None if the call had no
        response."""
        from devicemanager.events.calls.rendering import response_data

        return None if self.response_bytes is None else response_data(self.rpc, self.response_bytes)

    @property
    def device_ids(self) -> frozenset[str]:
        """The IDs of the devices that the request names, for all its containers together.

        Allocate and PreStartContainer name the requested devices, GetPreferredAllocation the
        available devices.
        """
        from devicemanager.events.calls.rendering import device_ids

        return device_ids(self.rpc, self.request_bytes)

    def __str__(self) -> str:
        """Describe the call in one line, cut if it is very long."""
        named = f" {listed(sorted(self.device_ids), _SHOWN_IDS)}" if self.device_ids else ""
        what = self.rpc if self.stream_message is None else f"{self.rpc} list {self.stream_message}"
        who = self.plugin if self.resource is None else f"{self.resource} ({self.plugin})"
        seconds = f"after {self.duration:.3f} s"
        text = f"call {self.number}: {what} {who}{named}: {self._outcome()} {seconds}"
        return printable(text + (f" [{self.fault}]" if self.fault else ""), _LONGEST_LINE)

    def _outcome(self) -> str:
        if self.message:
            return f"{self.code}: {self.message}"
        if self.stream_message is None or self.response is None:
            return self.code
        # A response that cannot be decoded has no key ``devices``.
        number = len(self.response.get("devices", ()))
        return "1 device" if number == 1 else f"{number} devices"


def call_data(call: Call) -> dict[str, Any]:
    """Return a call as plain data for JSON, in the form that docs/json.md describes."""
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
