"""Values as plain data for JSON as our tools print it: names in snake_case, numbers as numbers,
a device's NUMA nodes as a list (docs/json.md). ``rendering`` has protobuf's own mapping."""

from __future__ import annotations

from typing import Any

from podresources.allocatable import Allocatable
from podresources.shares import ContainerMemory, DynamicResource
from podresources.values import Container, ContainerDevices, Pod

Data = dict[str, Any]


def pod_data(pod: Pod) -> Data:
    """A pod of the PodResources API."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "containers": [_container(container) for container in pod.containers],
        "cpu_ids": list(pod.cpu_ids),
        "memory": [_memory(memory) for memory in pod.memory],
    }


def allocatable_data(allocatable: Allocatable | Container) -> Data:
    """Devices, CPUs and memory that a node can give, or a container holds."""
    return {
        "devices": [_devices(devices) for devices in allocatable.devices],
        "cpu_ids": list(allocatable.cpu_ids),
        "memory": [_memory(memory) for memory in allocatable.memory],
    }


def _container(container: Container) -> Data:
    claims = [_claim(claim) for claim in container.dynamic_resources]
    return {"name": container.name, **allocatable_data(container), "dynamic_resources": claims}


def _devices(devices: ContainerDevices) -> Data:
    return {
        "resource_name": devices.resource_name,
        "device_ids": list(devices.device_ids),
        "numa_nodes": list(devices.nodes),
    }


def _memory(memory: ContainerMemory) -> Data:
    return {
        "memory_type": memory.memory_type,
        "size": memory.size,
        "numa_nodes": list(memory.nodes),
    }


def _claim(claim: DynamicResource) -> Data:
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
