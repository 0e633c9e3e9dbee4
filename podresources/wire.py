"""Values to and from the bytes of PodResources messages."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import DecodeError

from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)
from protos import podresources_v1 as v1
from protos import podresources_v1alpha1 as v1alpha1

__all__ = [
    "DecodeError",
    "allocatable_from_bytes",
    "allocatable_to_bytes",
    "pod_from_bytes",
    "pod_to_bytes",
    "pod_to_v1alpha1_bytes",
    "pods_from_bytes",
    "pods_from_v1alpha1_bytes",
]


def pod_to_bytes(pod: Pod, *, grouped: bool = False) -> bytes:
    """One pod as a field of a v1 ListPodResourcesResponse.

    ``grouped``: one entry per resource and NUMA node, with all its devices, as in v1.20.

    Responses with many pods are these bytes joined. A GetPodResourcesResponse has its
    pod under the same field number, so the bytes are a whole Get response as well.
    """
    response = v1.ListPodResourcesResponse()
    message = response.pod_resources.add(name=pod.name, namespace=pod.namespace)
    for container in pod.containers:
        _add_container(message.containers.add(name=container.name), container, grouped)
    message.cpu_ids.extend(pod.cpu_ids)
    _add_memory(message.memory, pod.memory)
    return response.SerializeToString()


def pod_to_v1alpha1_bytes(pod: Pod) -> bytes:
    """One pod as a field of a v1alpha1 ListPodResourcesResponse: app containers only,
    one entry per device id and NUMA node as in v1 but without the node
    (``v1DevicesToAlphaV1``, pkg/kubelet/apis/podresources/server_v1alpha1.go, v1.32)."""
    response = v1alpha1.ListPodResourcesResponse()
    message = response.pod_resources.add(name=pod.name, namespace=pod.namespace)
    for container in pod.containers:
        if not container.restartable_init:
            held = message.containers.add(name=container.name)
            for entry in _entries(container.devices):
                held.devices.add(resource_name=entry.resource_name, device_ids=entry.device_ids)
    return response.SerializeToString()


def allocatable_to_bytes(allocatable: Allocatable) -> bytes:
    """A whole v1 AllocatableResourcesResponse."""
    message = v1.AllocatableResourcesResponse(cpu_ids=allocatable.cpu_ids)
    _add_devices(message.devices, allocatable.devices)
    _add_memory(message.memory, allocatable.memory)
    return message.SerializeToString()


def pods_from_bytes(data: bytes) -> tuple[Pod, ...]:
    """The pods of a v1 ListPodResourcesResponse. Raises DecodeError."""
    message = v1.ListPodResourcesResponse.FromString(data)
    return tuple(_pod(pod) for pod in message.pod_resources)


def pod_from_bytes(data: bytes) -> Pod:
    """The pod of a v1 GetPodResourcesResponse. Raises DecodeError."""
    return _pod(v1.GetPodResourcesResponse.FromString(data).pod_resources)


def allocatable_from_bytes(data: bytes) -> Allocatable:
    """What a v1 AllocatableResourcesResponse names. Raises DecodeError."""
    message = v1.AllocatableResourcesResponse.FromString(data)
    return Allocatable(
        devices=_devices(message.devices),
        cpu_ids=tuple(message.cpu_ids),
        memory=_memory(message.memory),
    )


def pods_from_v1alpha1_bytes(data: bytes) -> tuple[Pod, ...]:
    """The pods of a v1alpha1 ListPodResourcesResponse. Raises DecodeError."""
    message = v1alpha1.ListPodResourcesResponse.FromString(data)
    return tuple(
        Pod(pod.name, pod.namespace, tuple(_v1alpha1_container(c) for c in pod.containers))
        for pod in message.pod_resources
    )


def _entries(devices: Iterable[ContainerDevices]) -> Iterable[ContainerDevices]:
    for group in devices:
        yield from group.entries()


def _add_container(message: v1.ContainerResources, container: Container, grouped: bool) -> None:
    (_add_grouped if grouped else _add_devices)(message.devices, container.devices)
    message.cpu_ids.extend(container.cpu_ids)
    _add_memory(message.memory, container.memory)
    for claim in container.dynamic_resources:
        message.dynamic_resources.append(_claim_message(claim))


def _add_devices(
    into: RepeatedCompositeFieldContainer[v1.ContainerDevices],
    devices: Iterable[ContainerDevices],
) -> None:
    # Not through entries(): with 10,000 devices the values in between cost the most.
    for group in devices:
        # A topology without nodes counts as none (Q13): the field stays absent.
        topologies: list[v1.TopologyInfo | None] = [None]
        if group.nodes:
            topologies = [_topology_message((node,)) for node in group.nodes]
        for device_id in group.device_ids:
            for topology in topologies:
                into.add(
                    resource_name=group.resource_name, device_ids=(device_id,), topology=topology
                )


def _add_grouped(
    into: RepeatedCompositeFieldContainer[v1.ContainerDevices],
    devices: Iterable[ContainerDevices],
) -> None:
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for entry in _entries(devices):
        groups.setdefault((entry.resource_name, entry.nodes), []).extend(entry.device_ids)
    for (resource_name, nodes), ids in groups.items():
        topology = _topology_message(nodes) if nodes else None
        into.add(resource_name=resource_name, device_ids=ids, topology=topology)


def _add_memory(
    into: MutableSequence[v1.ContainerMemory], memory: Iterable[ContainerMemory]
) -> None:
    for block in memory:
        topology = _topology_message(block.nodes) if block.nodes else None
        into.append(
            v1.ContainerMemory(memory_type=block.memory_type, size=block.size, topology=topology)
        )


def _topology_message(nodes: Iterable[int]) -> v1.TopologyInfo:
    return v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in nodes])


def _claim_message(claim: DynamicResource) -> v1.DynamicResource:
    return v1.DynamicResource(
        claim_name=claim.claim_name,
        claim_namespace=claim.claim_namespace,
        claim_resources=[
            v1.ClaimResource(
                cdi_devices=[v1.CDIDevice(name=name) for name in given.cdi_devices],
                driver_name=given.driver_name,
                pool_name=given.pool_name,
                device_name=given.device_name,
                share_id=given.share_id,
            )
            for given in claim.claim_resources
        ],
    )


def _pod(message: v1.PodResources) -> Pod:
    return Pod(
        name=message.name,
        namespace=message.namespace,
        containers=tuple(_container(container) for container in message.containers),
        cpu_ids=tuple(message.cpu_ids),
        memory=_memory(message.memory),
    )


def _container(message: v1.ContainerResources) -> Container:
    return Container(
        name=message.name,
        devices=_devices(message.devices),
        cpu_ids=tuple(message.cpu_ids),
        memory=_memory(message.memory),
        dynamic_resources=tuple(_claim(claim) for claim in message.dynamic_resources),
    )


def _v1alpha1_container(message: v1alpha1.ContainerResources) -> Container:
    held = (ContainerDevices(d.resource_name, tuple(d.device_ids)) for d in message.devices)
    return Container(message.name, tuple(held))


def _devices(messages: Iterable[v1.ContainerDevices]) -> tuple[ContainerDevices, ...]:
    return tuple(
        ContainerDevices(
            entry.resource_name,
            tuple(entry.device_ids),
            _nodes(entry.topology) if entry.HasField("topology") else (),
        )
        for entry in messages
    )


def _memory(messages: Iterable[v1.ContainerMemory]) -> tuple[ContainerMemory, ...]:
    return tuple(
        ContainerMemory(block.memory_type, block.size, _nodes(block.topology)) for block in messages
    )


def _nodes(topology: v1.TopologyInfo) -> tuple[int, ...]:
    return tuple(node.ID for node in topology.nodes)


def _claim(message: v1.DynamicResource) -> DynamicResource:
    return DynamicResource(
        claim_name=message.claim_name,
        claim_namespace=message.claim_namespace,
        claim_resources=tuple(_claim_resource(given) for given in message.claim_resources),
    )


def _claim_resource(message: v1.ClaimResource) -> ClaimResource:
    return ClaimResource(
        driver_name=message.driver_name,
        pool_name=message.pool_name,
        device_name=message.device_name,
        cdi_devices=tuple(device.name for device in message.cdi_devices),
        share_id=message.share_id if message.HasField("share_id") else None,
    )
