"""The methods that are recorded, and their messages as data."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message

from protos import deviceplugin_v1beta1 as dp

__all__ = ["LIST_AND_WATCH", "REGISTER", "as_data", "request_type", "response_type"]

REGISTER = "Register"
LIST_AND_WATCH = "ListAndWatch"

_TYPES: dict[str, tuple[type[Message], type[Message]]] = {
    REGISTER: (dp.RegisterRequest, dp.Empty),
    "GetDevicePluginOptions": (dp.Empty, dp.DevicePluginOptions),
    LIST_AND_WATCH: (dp.Empty, dp.ListAndWatchResponse),
    "GetPreferredAllocation": (dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
    "Allocate": (dp.AllocateRequest, dp.AllocateResponse),
    "PreStartContainer": (dp.PreStartContainerRequest, dp.PreStartContainerResponse),
}


def request_type(rpc: str) -> type[Message] | None:
    """The request's message; None for a method that the API does not have."""
    return _TYPES.get(rpc, (None, None))[0]


def response_type(rpc: str) -> type[Message] | None:
    """The response's message; None for a method that the API does not have."""
    return _TYPES.get(rpc, (None, None))[1]


def as_data(kind: type[Message] | None, content: bytes) -> dict[str, Any]:
    """A message as data: the fields of the .proto file by their names there, those with
    default values included, numbers as numbers. ``{"undecodable": "<base64>"}`` for what is
    no such message."""
    try:
        if kind is not None:
            return _message(kind.FromString(content))
    except (DecodeError, UnicodeDecodeError):
        pass
    return {"undecodable": base64.b64encode(content).decode()}


def _message(message: Message) -> dict[str, Any]:
    return {
        field.name: _value(getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(value: Any) -> Any:
    match value:
        case Message():
            return _message(value)
        case Mapping():
            return dict(sorted(value.items()))  # the API's maps are of strings
        case str() | bytes():
            return value
        case Sequence():
            return [_value(each) for each in value]
        case _:
            return value
