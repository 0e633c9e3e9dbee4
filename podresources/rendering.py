"""Convert PodResources values to JSON data, in one of two forms.

``as_dict`` uses protobuf's JSON mapping. ``pod_data`` and ``allocatable_data`` return the form that
devicemanager's commands print (docs/json.md): snake_case names, JSON numbers, and lists of NUMA
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

Json = dict[str, Any]


def as_dict(answer: Sequence[Pod] | Pod | Allocatable) -> Json:
    """Convert a response to protobuf's JSON mapping with the original field names.

    A sequence of pods becomes a List response. One pod becomes a ``PodResources`` message. An
    ``Allocatable`` becomes a GetAllocatableResources response. 64-bit numbers become strings, as
    the mapping requires. Empty fields are included, so readers need no defaults. Only ``topology``
    and ``share_id`` can be absent.
    """
    match answer:
        case Pod():
            return _pod(answer)
        case Allocatable():
            return _holdings(answer)
        case _:
            return {"pod_resources": [_pod(pod) for pod in answer]}


def _pod(pod: Pod) -> Json:
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [_container(container) for container in pod.containers],
        "cpu_ids": _numbers(pod.cpu_ids),
        "memory": [_memory(memory) for memory in pod.memory],
    }


def _container(container: Container) -> Json:
    claims = [_dynamic_resource(claim) for claim in container.dynamic_resources]
    return {"name": container.name, **_holdings(container), "dynamic_resources": claims}


def _holdings(holder: Container | Allocatable) -> Json:
    return {
        "devices": [_devices(devices) for devices in holder.devices],
        "cpu_ids": _numbers(holder.cpu_ids),
        "memory": [_memory(memory) for memory in holder.memory],
    }


def _devices(devices: ContainerDevices) -> Json:
    head = {"resource_name": devices.resource_name, "device_ids": list(devices.device_ids)}
    return head | _topology(devices.nodes)


def _memory(memory: ContainerMemory) -> Json:
    head = {"memory_type": memory.memory_type, "size": str(memory.size)}
    return head | _topology(memory.nodes)


def _topology(nodes: tuple[int, ...]) -> Json:
    return {"topology": {"nodes": [{"ID": str(node)} for node in nodes]}} if nodes else {}


def _dynamic_resource(claim: DynamicResource) -> Json:
    return {
        "claim_name": claim.claim_name,
        "claim_namespace": claim.claim_namespace,
        "claim_resources": [_claim_resource(given) for given in claim.claim_resources],
    }


def _claim_resource(given: ClaimResource) -> Json:
    shown: Json = {
        "cdi_devices": [{"name": name} for name in given.cdi_devices],
        "driver_name": given.driver_name,
        "pool_name": given.pool_name,
        "device_name": given.device_name,
    }
    return shown if given.share_id is None else shown | {"share_id": given.share_id}


def _numbers(values: tuple[int, ...]) -> list[str]:
    return [str(value) for value in values]


def pod_data(pod: Pod) -> Json:
    """Convert a pod to the JSON data that devicemanager's commands print."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "containers": [_container_data(container) for container in pod.containers],
        "cpu_ids": list(pod.cpu_ids),
        "memory": [_memory_data(memory) for memory in pod.memory],
    }


def allocatable_data(allocatable: Allocatable | Container) -> Json:
    """Convert devices, CPUs and memory to the JSON data that devicemanager's commands print."""
    return {
        "devices": [_devices_data(devices) for devices in allocatable.devices],
        "cpu_ids": list(allocatable.cpu_ids),
        "memory": [_memory_data(memory) for memory in allocatable.memory],
    }


def _container_data(container: Container) -> Json:
    claims = [_claim_data(claim) for claim in container.dynamic_resources]
    return {"name": container.name, **allocatable_data(container), "dynamic_resources": claims}


def _devices_data(devices: ContainerDevices) -> Json:
    return {
        "resource_name": devices.resource_name,
        "device_ids": list(devices.device_ids),
        "numa_nodes": list(devices.nodes),
    }


def _memory_data(memory: ContainerMemory) -> Json:
    return {
        "memory_type": memory.memory_type,
        "size": memory.size,
        "numa_nodes": list(memory.nodes),
    }


def _claim_data(claim: DynamicResource) -> Json:
    return {
        "claim_name": claim.claim_name,
        "claim_namespace": claim.claim_namespace,
        "claim_resources": [
            {
                "driver_name": given.driver_name,
                "pool_name": given.pool_name,
                "device_name": given.device_name,
                "share_id": given.share_id,
                "cdi_devices": list(given.cdi_devices),
            }
            for given in claim.claim_resources
        ],
    }
