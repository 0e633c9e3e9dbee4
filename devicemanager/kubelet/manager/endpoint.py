"""What the manager asks of a plugin."""

from __future__ import annotations

from typing import Protocol

from devicemanager.core.allocation.selection import AllocateAnswer
from devicemanager.core.ids import DeviceId

__all__ = ["PluginClient"]


class PluginClient(Protocol):
    """What the manager asks of a plugin: the real endpoint, or a fake in tests.

    Every call raises ``RpcError`` if the RPC fails, with the status as Go prints it.
    """

    def allocate(self, device_ids: tuple[DeviceId, ...]) -> AllocateAnswer:
        """Allocate for one container."""

    def preferred_allocation(
        self, available: tuple[DeviceId, ...], must_include: tuple[DeviceId, ...], size: int
    ) -> tuple[DeviceId, ...]:
        """GetPreferredAllocation for one container; the first container's answer."""

    def pre_start_container(self, device_ids: tuple[DeviceId, ...]) -> None:
        """PreStartContainer."""

    def close(self) -> None:
        """Let the connection go; calls under way fail. Never blocks."""

    def join(self) -> None:
        """Wait until a closed connection tells nothing any more."""
