"""What containers hold besides devices: memory and resource claims.

Apart from ``values``: the first List of most nodes needs none of these.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class ContainerMemory:
    """``size`` bytes of ``memory_type`` (``memory`` or ``hugepages-<size>``) on ``nodes``."""

    memory_type: str
    size: int
    nodes: tuple[int, ...] = ()


@attrs.frozen
class ClaimResource:
    """One device given to a resource claim. ``cdi_devices`` are qualified CDI names."""

    driver_name: str
    pool_name: str
    device_name: str
    cdi_devices: tuple[str, ...] = ()
    share_id: str | None = None


@attrs.frozen
class DynamicResource:
    """One resource claim that a container uses."""

    claim_name: str
    claim_namespace: str
    claim_resources: tuple[ClaimResource, ...] = ()
