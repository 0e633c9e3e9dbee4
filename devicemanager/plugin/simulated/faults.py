"""Faults of a simulated plugin: wrong lists and responses, delays and errors."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY
from protos import deviceplugin_v1beta1 as dp

__all__ = ["RPCS", "AllocateFault", "Faults", "ListFault", "SimulatedError", "faulty_lists"]

RPCS = (
    "GetDevicePluginOptions",
    "ListAndWatch",
    "Allocate",
    "GetPreferredAllocation",
    "PreStartContainer",
)

GARBAGE = b"\xff\xff\xff garbage"
"""Bytes that no protobuf message type can parse."""

# Approximate number of devices that fit into 4 MiB, the maximum size that the kubelet accepts.
_HUGE = 100_000
_OVER_4_MIB = 4 * 1024 * 1024 + 1


class ListFault(StrEnum):
    """Fault of ListAndWatch: wrong, too many or no lists, or an early end of the stream."""

    NONE = "none"
    DUPLICATE_IDS = "duplicate-ids"
    EMPTY_ID = "empty-id"
    UNKNOWN_HEALTH = "unknown-health"
    NEGATIVE_NUMA = "negative-numa"
    EMPTY_TOPOLOGY = "empty-topology"
    HUGE = "huge"  # 100,000 devices
    OVERSIZE = "oversize"  # more than 4 MiB
    FLOOD = "flood"  # 1,000 lists per second; each changes the health of the last device
    CLOSE = "close"  # sends the list, then closes the stream
    ABORT = "abort"  # sends the list, then fails
    GARBAGE = "garbage"
    SILENT = "silent"  # keeps the stream open and sends nothing


class AllocateFault(StrEnum):
    """Fault of Allocate: what the plugin does instead of returning one response per container."""

    NONE = "none"
    NO_RESPONSES = "no-responses"
    EXTRA_RESPONSE = "extra-response"
    HANG = "hang"
    GARBAGE = "garbage"


@attrs.frozen
class SimulatedError:
    """Error of an RPC: the name of a gRPC code, such as ``UNAVAILABLE``, and a text."""

    code: str
    text: str = "simulated"

    def __str__(self) -> str:
        return f"{self.code}:{self.text}"


@attrs.define
class Faults:
    """Faults of a running simulated plugin. A change applies from the next call on.

    ``delays``: seconds by RPC name. ``errors``: errors by RPC name, returned after the delay.
    """

    delays: dict[str, float] = attrs.field(factory=dict)
    errors: dict[str, SimulatedError] = attrs.field(factory=dict)
    lists: ListFault = ListFault.NONE
    allocate: AllocateFault = AllocateFault.NONE

    def clear(self) -> None:
        """Remove all faults."""
        self.delays.clear()
        self.errors.clear()
        self.lists = ListFault.NONE
        self.allocate = AllocateFault.NONE

    def copy(self) -> Faults:
        """Return a copy that later changes do not affect."""
        return attrs.evolve(self, delays=dict(self.delays), errors=dict(self.errors))


def faulty_lists(fault: ListFault, payload: bytes) -> Iterator[bytes]:
    """Yield the serialized lists that a plugin with this fault sends. ``payload`` is the correct
    list."""
    # Add to the correct list instead of replacing it, so that tests can check that its devices
    # stay available.
    message = dp.ListAndWatchResponse.FromString(payload)
    match fault:
        case ListFault.DUPLICATE_IDS:
            # Merging appends repeated fields, so the message lists each device twice.
            message.MergeFromString(payload)
        case ListFault.EMPTY_ID:
            message.devices.add(ID="", health=HEALTHY)
        case ListFault.UNKNOWN_HEALTH:
            message.devices.add(ID="of-unknown-health", health="Sick")
        case ListFault.NEGATIVE_NUMA:
            message.devices.add(ID="on-node-minus-5", health=HEALTHY).topology.nodes.add(ID=-5)
        case ListFault.EMPTY_TOPOLOGY:
            # A topology without NUMA nodes. Kubelets hide such a device from PodResources (Q13).
            message.devices.add(ID="without-nodes", health=HEALTHY).topology.SetInParent()
        case ListFault.HUGE:
            for index in range(_HUGE - len(message.devices)):
                message.devices.add(ID=f"extra-{index}", health=HEALTHY)
        case ListFault.OVERSIZE:
            message.devices.add(ID="x" * _OVER_4_MIB, health=HEALTHY)
        case ListFault.GARBAGE:
            yield GARBAGE
            return
    yield message.SerializeToString()
