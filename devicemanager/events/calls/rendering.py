"""Decode the messages of calls into plain data.

The call log stores messages as bytes, and most calls are never read. This module is therefore
imported only when a program reads the messages of a call.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message

from protos import deviceplugin_v1beta1 as dp
from protos import dra_v1, drahealth_v1
from protos import pluginregistration_v1 as pr

__all__ = ["RPCS", "device_ids", "request_data", "response_data"]

_MESSAGES: Mapping[str, tuple[type[Message], type[Message]]] = {
    "Register": (dp.RegisterRequest, dp.Empty),
    "GetDevicePluginOptions": (dp.Empty, dp.DevicePluginOptions),
    "ListAndWatch": (dp.Empty, dp.ListAndWatchResponse),
    "GetPreferredAllocation": (dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
    "Allocate": (dp.AllocateRequest, dp.AllocateResponse),
    "PreStartContainer": (dp.PreStartContainerRequest, dp.PreStartContainerResponse),
    "GetInfo": (pr.InfoRequest, pr.PluginInfo),
    "NotifyRegistrationStatus": (pr.RegistrationStatus, pr.RegistrationStatusResponse),
    # The messages of v1beta1 and of v1alpha1 are those of v1.
    "NodePrepareResources": (
        dra_v1.NodePrepareResourcesRequest,
        dra_v1.NodePrepareResourcesResponse,
    ),
    "NodeUnprepareResources": (
        dra_v1.NodeUnprepareResourcesRequest,
        dra_v1.NodeUnprepareResourcesResponse,
    ),
    "NodeWatchResources": (
        drahealth_v1.NodeWatchResourcesRequest,
        drahealth_v1.NodeWatchResourcesResponse,
    ),
}
"""Request and response types of each method."""
RPCS = tuple(_MESSAGES)
"""Names of the RPCs that a call log records."""


def request_data(rpc: str, request: bytes) -> dict[str, Any]:
    """Decode the request of an RPC into plain data, as ``Call.request`` returns it."""
    return _data(_MESSAGES[rpc][0], request)


def response_data(rpc: str, response: bytes) -> dict[str, Any]:
    """Decode the response of an RPC into plain data, as ``Call.response`` returns it."""
    return _data(_MESSAGES[rpc][1], response)


def _data(kind: type[Message], content: bytes) -> dict[str, Any]:
    try:
        message = kind.FromString(content)
        return _message(message)
    # A broken plugin can send any bytes, and the log must still show its call.
    except (DecodeError, UnicodeDecodeError):
        return {"undecodable": base64.b64encode(content).decode()}


def _message(message: Message) -> dict[str, Any]:
    """Convert a protobuf message to a dict; an absent message field or oneof member has no key.

    Unlike in protobuf's JSON form, 64-bit integers are numbers.
    """
    # Reading an absent message field would give an empty message.
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
            # Protobuf maps have no fixed order; equal messages must look equal.
            return {key: _value(value[key]) for key in sorted(value)}
        # Before the case of sequences: text and bytes are sequences, too.
        case str() | bytes():
            return value
        case Sequence():
            return [_value(each) for each in value]
        case _:
            return value


def device_ids(rpc: str, request: bytes) -> frozenset[str]:
    """Return the IDs of the devices that a request names, for all its containers together."""
    data = request_data(rpc, request)
    # PreStartContainer has the IDs in the request itself, without a list of containers.
    containers: Iterable[Mapping[str, Any]] = data.get("container_requests", (data,))
    return frozenset(
        id_
        for container in containers
        for field in ("devices_ids", "available_deviceIDs")
        for id_ in container.get(field, ())
    )
