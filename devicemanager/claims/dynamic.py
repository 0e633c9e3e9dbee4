"""What PodResources shows of a claim: each device with the CDI ids that its driver gave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from devicemanager.claims.core.inventory import DeviceKey
from podresources import ClaimResource, DynamicResource

CdiIds = Mapping[DeviceKey, tuple[str, ...]]
"""Qualified CDI names by device; a device may have none."""


def dynamic_resource(
    namespace: str, name: str, devices: Iterable[DeviceKey], cdi: CdiIds
) -> DynamicResource | None:
    """One claim by driver, pool and device; None for a claim that has no devices.

    A device shows its own CDI ids only. The kubelet repeats those of the devices before it
    (``GetDynamicResources``, pkg/kubelet/cm/container_manager_linux.go, v1.32).
    """
    resources = tuple(
        [
            ClaimResource(key.driver, key.pool, key.name, tuple(cdi.get(key, ())))
            for key in sorted(devices)
        ]
    )
    return DynamicResource(name, namespace, resources) if resources else None
