"""Decode PodResources messages from bytes to values. The client uses this module."""

from __future__ import annotations

from collections.abc import Iterable

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
    "pod_from_bytes",
    "pods_from_bytes",
    "pods_from_v1alpha1_bytes",
]


def pods_from_bytes(data: bytes) -> tuple[Pod, ...]:
    """Decode a v1 ListPodResourcesResponse to pods. Raises DecodeError."""
    message = v1.ListPodResourcesResponse.FromString(data)
    return tuple(_pod(pod) for pod in message.pod_resources)


def pod_from_bytes(data: bytes) -> Pod:
    """Decode a v1 GetPodResourcesResponse to a pod. Raises DecodeError."""
    return _pod(v1.GetPodResourcesResponse.FromString(data).pod_resources)


def allocatable_from_bytes(data: bytes) -> Allocatable:
    """Decode a v1 AllocatableResourcesResponse to a value. Raises DecodeError."""
    message = v1.AllocatableResourcesResponse.FromString(data)
    return Allocatable(
        devices=_devices(message.devices),
        cpu_ids=tuple(message.cpu_ids),
        memory=_memory(message.memory),
    )


def pods_from_v1alpha1_bytes(data: bytes) -> tuple[Pod, ...]:
    """Decode a v1alpha1 ListPodResourcesResponse to pods. Raises DecodeError."""
    message = v1alpha1.ListPodResourcesResponse.FromString(data)
    return tuple(
        Pod(pod.name, pod.namespace, tuple(_v1alpha1_container(c) for c in pod.containers))
        for pod in message.pod_resources
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
    devices = (ContainerDevices(d.resource_name, tuple(d.device_ids)) for d in message.devices)
    return Container(message.name, tuple(devices))


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
