"""Encode values to the bytes of PodResources messages. The server uses this module."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import TYPE_CHECKING

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from protos import podresources_v1 as v1
from protos import podresources_v1alpha1 as v1alpha1

if TYPE_CHECKING:
    from podresources.values import (
        Allocatable,
        Container,
        ContainerDevices,
        ContainerMemory,
        DynamicResource,
        Pod,
    )


def pod_to_bytes(pod: Pod, *, grouped: bool = False) -> bytes:
    """Encode one pod as a field of a v1 ListPodResourcesResponse.

    If ``grouped`` is true, one entry has all devices of a resource on a NUMA node, as in v1.20.
    Otherwise, each entry has only one device ID.
    """
    # The concatenated bytes of several pods are a List response. A Get response has its pod under
    # the same field number, so the bytes of one pod are a Get response, too.
    response = v1.ListPodResourcesResponse()
    message = response.pod_resources.add(name=pod.name, namespace=pod.namespace)
    for container in pod.containers:
        _add_container(message.containers.add(name=container.name), container, grouped)
    message.cpu_ids.extend(pod.cpu_ids)
    _add_memory(message.memory, pod.memory)
    return response.SerializeToString()


def pod_to_v1alpha1_bytes(pod: Pod) -> bytes:
    """Encode one pod as a field of a v1alpha1 ListPodResourcesResponse.

    The pod has only its app containers. As in v1, there is one entry per device ID and NUMA node,
    but the entry does not contain the node (``v1DevicesToAlphaV1``,
    pkg/kubelet/apis/podresources/server_v1alpha1.go, v1.32).
    """
    response = v1alpha1.ListPodResourcesResponse()
    message = response.pod_resources.add(name=pod.name, namespace=pod.namespace)
    for container in pod.containers:
        if not container.restartable_init:
            added = message.containers.add(name=container.name)
            for entry in _entries(container.devices):
                added.devices.add(resource_name=entry.resource_name, device_ids=entry.device_ids)
    return response.SerializeToString()


def allocatable_to_bytes(allocatable: Allocatable) -> bytes:
    """Encode a v1 AllocatableResourcesResponse."""
    message = v1.AllocatableResourcesResponse(cpu_ids=allocatable.cpu_ids)
    _add_devices(message.devices, allocatable.devices)
    _add_memory(message.memory, allocatable.memory)
    return message.SerializeToString()


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
    # This does not use ContainerDevices.entries(): for 10,000 devices, creating these values would
    # cost more than the encoding.
    for group in devices:
        # An empty topology is treated like a missing one (quirk Q13): the field stays absent.
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
