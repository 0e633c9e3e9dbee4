"""Contents of the scripted responses: ordinary contents, and unusual contents on which real clients
have failed.

All functions are pure: equal arguments lead to equal values.
"""

from __future__ import annotations

from collections.abc import Sequence

from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

__all__ = [
    "Content",
    "claims_only",
    "empty_pods",
    "gone_resource",
    "huge",
    "odd_ids",
    "on_nodes",
    "ordinary",
]

Content = tuple[tuple[Pod, ...], Allocatable]
"""Pods and allocatable resources of one response."""

_NAMESPACE = "conformance"
# At least one real client has a map with only the NUMA nodes of the machine, and crashes when it
# finds another number.
_UNKNOWN_NODES = (63, 4096)


def device_id(index: int) -> str:
    """Return the ID of the device with this number, in the form of a GPU's UUID."""
    return f"GPU-00000000-0000-4000-8000-{index:012d}"


def _device_ids(index: int) -> tuple[str, str]:
    """Return two IDs for this number: the UUID of a GPU and a PCI address. Some clients show only
    IDs of one form."""
    return device_id(index), f"0000:{16 + index:02x}:00.0"


def _allocatable(resources: Sequence[str], count: int, nodes: Sequence[int] = (0,)) -> Allocatable:
    devices = tuple(
        ContainerDevices(resource, _device_ids(index), (nodes[index % len(nodes)],))
        for resource in resources
        for index in range(count)
    )
    return Allocatable(devices, (0, 1, 2, 3), (ContainerMemory("memory", 64 << 30, (0,)),))


def _pod(name: str, *devices: ContainerDevices, cpu_ids: tuple[int, ...] = ()) -> Pod:
    return Pod(name, _NAMESPACE, (Container("main", devices, cpu_ids),))


def ordinary(resources: Sequence[str], first: int = 0, count: int = 2) -> Content:
    """Return ``count`` pods with two devices of each resource, and a pod without devices.

    ``first`` is the number of the first pod. The node has sixteen devices of each resource. Pods
    whose numbers are equal modulo 8 have the same devices.
    """
    pods = [
        _pod(
            f"train-{index}",
            *(ContainerDevices(resource, _device_ids(index % 8), (0,)) for resource in resources),
            cpu_ids=(index % 4,),
        )
        for index in range(first, first + count)
    ]
    return (_pod("web"), *pods), _allocatable(resources, 8)


def empty_pods() -> Content:
    """Return two pods without devices, on a node without allocatable resources.

    One pod has no containers. The other pod has one, with neither devices nor exclusive CPUs.
    """
    return (Pod("bare", _NAMESPACE), _pod("idle")), Allocatable()


def on_nodes(resources: Sequence[str], nodes: Sequence[int] = _UNKNOWN_NODES) -> Content:
    """Return pods with devices on the NUMA nodes ``nodes``, by default 63 and 4096. Usual machines
    do not have these NUMA nodes.

    For each NUMA node, one pod has devices on it. In the next pod, each device is on all ``nodes``
    at once. In the last pod, the devices have no NUMA node.
    """
    places: list[tuple[int, ...]] = [(node,) for node in nodes]
    pods = tuple(
        _pod(
            f"far-{index}",
            *(ContainerDevices(resource, (device_id(index),), place) for resource in resources),
        )
        for index, place in enumerate([*places, tuple(nodes), ()])
    )
    return pods, _allocatable(resources, 8, nodes)


def gone_resource(resources: Sequence[str]) -> Content:
    """Return pods with devices that are not allocatable.

    One pod has a device of a resource that no plugin serves. For each of ``resources``, another pod
    has a device of this resource that its plugin does not list.
    """
    pods = (
        _pod("orphan", ContainerDevices("gone.example.com/device", ("gone-0",), (0,))),
        *(
            _pod(f"lost-{index}", ContainerDevices(resource, ("removed-device",), (0,)))
            for index, resource in enumerate(resources)
        ),
    )
    return pods, _allocatable(resources, 1)


def claims_only() -> Content:
    """Return pods whose devices come only from resource claims, on a node without plugins."""
    claims = tuple(
        DynamicResource(
            f"claim-{index}",
            _NAMESPACE,
            (ClaimResource("driver.example.com", "node-a", f"dev-{index}", (f"x.com/d={index}",)),),
        )
        for index in range(2)
    )
    pods = tuple(
        Pod(f"claimer-{index}", _NAMESPACE, (Container("main", dynamic_resources=(claim,)),))
        for index, claim in enumerate(claims)
    )
    return pods, Allocatable()


def odd_ids(resources: Sequence[str]) -> Content:
    """Return pods with unusual device IDs, which contain a quote, a backslash, a line break or a
    letter outside of ASCII.

    The kubelet accepts any text as an ID. A metrics page must escape some of these characters.
    """
    ids = ('quote"d', "back\\slash", "line\nbreak", "d\u00e9vice")
    pods = tuple(
        _pod(
            f"odd-{index}",
            *(ContainerDevices(resource, (id_,), (0,)) for resource in resources),
        )
        for index, id_ in enumerate(ids)
    )
    return pods, _allocatable(resources, 1)


def huge(resources: Sequence[str], size: int) -> Content:
    """Return 110 pods, the kubelet's default maximum. A response with these pods has at least
    ``size`` bytes."""
    pods_count = 110
    # Each entry has the resource's name, an ID of at least 59 bytes, and some bytes of encoding. A
    # low estimate leads to more entries, so the response is never too small.
    entry = 64 + len(resources[0])
    per_pod = size // (pods_count * entry) + 1
    pods = tuple(
        _pod(
            f"batch-{number}",
            *(
                ContainerDevices(resources[0], (f"{device_id(number)}-{'x' * 16}-{index}",), (0,))
                for index in range(per_pod)
            ),
        )
        for number in range(pods_count)
    )
    return pods, _allocatable(resources, 8)
