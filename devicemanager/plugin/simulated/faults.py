"""The faults that the simulated plugin can be set to show."""

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
"""No protobuf message of any kind."""

_HUGE = 100_000
_OVER_4_MIB = 4 * 1024 * 1024 + 1


class ListFault(StrEnum):
    """What ListAndWatch sends instead of the plain list."""

    NONE = "none"
    DUPLICATE_IDS = "duplicate-ids"
    EMPTY_ID = "empty-id"
    UNKNOWN_HEALTH = "unknown-health"
    NEGATIVE_NUMA = "negative-numa"
    EMPTY_TOPOLOGY = "empty-topology"
    HUGE = "huge"  # 100,000 devices
    OVERSIZE = "oversize"  # more than 4 MiB
    FLOOD = "flood"  # 1,000 lists a second, the last device's health changing each time
    CLOSE = "close"  # the list, then the end of the stream
    ABORT = "abort"  # the list, then an error
    GARBAGE = "garbage"
    SILENT = "silent"  # the stream stays open, but nothing ever comes


class AllocateFault(StrEnum):
    """What Allocate answers instead of one response a container."""

    NONE = "none"
    NO_RESPONSES = "no-responses"
    EXTRA_RESPONSE = "extra-response"
    HANG = "hang"
    GARBAGE = "garbage"


@attrs.frozen
class SimulatedError:
    """A gRPC code by its name, such as ``UNAVAILABLE``, and the text."""

    code: str
    text: str = "simulated"

    def __str__(self) -> str:
        return f"{self.code}:{self.text}"


@attrs.define
class Faults:
    """The faults of a running plugin. Changing a field works from the next call on.

    ``delays`` are seconds per RPC name, ``errors`` what it fails with after that.
    """

    delays: dict[str, float] = attrs.field(factory=dict)
    errors: dict[str, SimulatedError] = attrs.field(factory=dict)
    lists: ListFault = ListFault.NONE
    allocate: AllocateFault = AllocateFault.NONE

    def clear(self) -> None:
        """No faults from here on."""
        self.delays.clear()
        self.errors.clear()
        self.lists = ListFault.NONE
        self.allocate = AllocateFault.NONE

    def copy(self) -> Faults:
        """These, whatever becomes of the original."""
        return attrs.evolve(self, delays=dict(self.delays), errors=dict(self.errors))


def faulty_lists(fault: ListFault, payload: bytes) -> Iterator[bytes]:
    """The messages to send for a fault that shows in them, from the right list's bytes."""
    message = dp.ListAndWatchResponse.FromString(payload)
    match fault:
        case ListFault.DUPLICATE_IDS:
            message.MergeFromString(payload)
        case ListFault.EMPTY_ID:
            message.devices.add(ID="", health=HEALTHY)
        case ListFault.UNKNOWN_HEALTH:
            message.devices.add(ID="of-unknown-health", health="Sick")
        case ListFault.NEGATIVE_NUMA:
            message.devices.add(ID="on-node-minus-5", health=HEALTHY).topology.nodes.add(ID=-5)
        case ListFault.EMPTY_TOPOLOGY:
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
