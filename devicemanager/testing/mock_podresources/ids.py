"""Device ids in the shapes that vendors use, those of the simulated plugin."""

from __future__ import annotations

__all__ = ["SHAPES", "device_ids"]

SHAPES = ("index", "gpu-uuid", "mig", "replica", "pci")
"""The names of the shapes; those of ``IdShape``."""


def device_ids(
    shape: str, count: int, *, replicas: int = 2, prefix: str = "gpu", node: str = "mock"
) -> tuple[str, ...]:
    """So many ids: ``gpu-uuid`` (``GPU-`` and a UUID), ``mig`` (``MIG-`` and a UUID),
    ``replica`` (``GPU-<UUID>::0``, with ``replicas`` of each GPU), ``pci``
    (``0000:01:00.0``), or ``index`` (``gpu-mock-0``).

    The same arguments give the same ids, which are those of a simulated plugin with these
    settings. Raises ConfigurationError for a shape that there is not.
    """
    # gRPC comes with it.
    from devicemanager.plugin.simulated.ids import device_id
    from devicemanager.plugin.simulated.settings import SimulationSettings

    settings = SimulationSettings(
        id_shape=shape, replicas=replicas, device_id_prefix=prefix, node_name=node
    )
    return tuple(device_id(settings, index) for index in range(count))
