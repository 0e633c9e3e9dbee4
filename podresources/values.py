"""What PodResources tells, as values: pods, their containers, and the devices of those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs


@attrs.frozen
class ContainerDevices:
    """Devices of one resource that share their NUMA nodes.

    ``nodes`` holds NUMA node ids; empty means no topology, also when a peer sent a
    topology without nodes. A source may list many ids at once: the server splits them
    with :meth:`entries`, and a client reads whatever grouping its peer sent.
    """

    resource_name: str
    device_ids: tuple[str, ...]
    nodes: tuple[int, ...] = ()

    def entries(self) -> Iterator[ContainerDevices]:
        """One value per device id and NUMA node, the shape in which the kubelet answers
        (``containerDevicesFromResourceDeviceInstances``, pkg/kubelet/cm, v1.32)."""
        places: list[tuple[int, ...]] = [(node,) for node in self.nodes] or [()]
        for device_id in self.device_ids:
            for nodes in places:
                yield ContainerDevices(self.resource_name, (device_id,), nodes)


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


@attrs.frozen
class Container:
    """One container and what it holds.

    ``restartable_init`` marks an init container with ``restartPolicy: Always``: v1
    answers list it, v1alpha1 answers leave it out. The wire does not carry the mark, so
    it is no part of equality and a client always reads it as false. Ordinary init
    containers have no place here.
    """

    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()
    restartable_init: bool = attrs.field(default=False, eq=False, kw_only=True)


@attrs.frozen
class Pod:
    """One pod. ``cpu_ids`` and ``memory`` are what the pod holds as a whole.

    ``active`` is false for a pod that was rejected or has finished, and is not deleted yet:
    kubelets from 1.34 on leave it out of v1 answers (k/k#132028). The wire does not carry
    the mark, so it is no part of equality and a client always reads it as true.
    """

    name: str
    namespace: str
    containers: tuple[Container, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()
    active: bool = attrs.field(default=True, eq=False, kw_only=True)


@attrs.frozen
class Allocatable:
    """What the node could give to containers: healthy devices, in use or not, and CPUs
    and memory where they are handed out exclusively."""

    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()


def ids_by_resource(devices: Iterable[ContainerDevices]) -> Mapping[str, tuple[str, ...]]:
    """Device ids per resource, each once, in order of appearance.

    A device on two NUMA nodes has two entries, and kubelets group entries differently:
    this is the view that does not depend on it.
    """
    found: dict[str, dict[str, None]] = {}
    for entry in devices:
        found.setdefault(entry.resource_name, {}).update(dict.fromkeys(entry.device_ids))
    return {resource: tuple(ids) for resource, ids in found.items()}
