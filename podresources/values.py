"""Values of the PodResources API: pods, containers and their resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs


@attrs.frozen
class ContainerDevices:
    """Devices of one resource that have the same NUMA nodes.

    ``nodes`` has NUMA node IDs; it is empty if the devices have no topology, or a topology without
    nodes. A source can list several device IDs in one value. The server splits such a value like
    :meth:`entries`. A client returns the grouping that the server sent.
    """

    resource_name: str
    device_ids: tuple[str, ...]
    nodes: tuple[int, ...] = ()

    def entries(self) -> Iterator[ContainerDevices]:
        """Yield one ``ContainerDevices`` per device ID and NUMA node, as in the kubelet's response
        (``containerDevicesFromResourceDeviceInstances``, pkg/kubelet/cm, v1.32)."""
        # A device on several NUMA nodes has one entry per node, not one entry with several nodes.
        places: list[tuple[int, ...]] = [(node,) for node in self.nodes] or [()]
        for device_id in self.device_ids:
            for nodes in places:
                yield ContainerDevices(self.resource_name, (device_id,), nodes)


@attrs.frozen
class ContainerMemory:
    """Memory of ``size`` bytes and type ``memory_type`` on the NUMA nodes ``nodes``.

    The type is ``memory`` or ``hugepages-<size>``.
    """

    memory_type: str
    size: int
    nodes: tuple[int, ...] = ()


@attrs.frozen
class ClaimResource:
    """Device of a resource claim. ``cdi_devices`` are qualified CDI names."""

    driver_name: str
    pool_name: str
    device_name: str
    cdi_devices: tuple[str, ...] = ()
    share_id: str | None = None


@attrs.frozen
class DynamicResource:
    """Resource claim of a container, with its devices."""

    claim_name: str
    claim_namespace: str
    claim_resources: tuple[ClaimResource, ...] = ()


@attrs.frozen
class Container:
    """Container of a pod with its resources.

    ``restartable_init`` is true for an init container with ``restartPolicy: Always``. v1 responses
    include such containers, v1alpha1 responses do not. The API does not transmit this field.
    Therefore a client always returns False, and comparisons ignore the field. Ordinary init
    containers are never included.
    """

    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()
    restartable_init: bool = attrs.field(default=False, eq=False, kw_only=True)


@attrs.frozen
class Pod:
    """Pod with its containers. ``cpu_ids`` and ``memory`` are allocated to the pod as a whole.

    ``active`` is false for a rejected or finished pod that is not deleted yet. Kubelets since 1.34
    leave such pods out of v1 responses (kubernetes/kubernetes#132028). The API does not transmit
    this field. Therefore a client always returns True, and comparisons ignore the field.
    """

    name: str
    namespace: str
    containers: tuple[Container, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()
    active: bool = attrs.field(default=True, eq=False, kw_only=True)


@attrs.frozen
class Allocatable:
    """Resources that the node can allocate, including those in use. They are healthy devices, CPUs
    for exclusive use, and memory."""

    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[ContainerMemory, ...] = ()


def ids_by_resource(devices: Iterable[ContainerDevices]) -> Mapping[str, tuple[str, ...]]:
    """Return the device IDs in ``devices`` by resource name, without duplicates, in order of
    appearance.

    The result does not depend on how a kubelet groups devices, which differs between versions. A
    device with two entries, one per NUMA node, appears once.
    """
    found: dict[str, dict[str, None]] = {}
    for entry in devices:
        found.setdefault(entry.resource_name, {}).update(dict.fromkeys(entry.device_ids))
    return {resource: tuple(ids) for resource, ids in found.items()}
