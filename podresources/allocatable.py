"""What GetAllocatableResources tells, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from podresources.shares import ContainerMemory
    from podresources.values import ContainerDevices


@attrs.frozen
class Allocatable:
    """What the node could give to containers: healthy devices, in use or not, and CPUs
    and memory where they are handed out exclusively."""

    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()
