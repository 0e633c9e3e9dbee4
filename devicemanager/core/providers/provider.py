"""Hint providers for resources other than devices, and the collection of a node's providers.

A provider is an immutable value. ``allocate`` and ``release`` return a changed copy. After a
failed allocation the old value is still valid, so nothing needs to be undone.
``HintProviders`` holds the current values; it is the only mutable class here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self

import attrs

from devicemanager.core import bitset
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.topology import ProviderHints

CPU = ResourceName("cpu")
MEMORY = ResourceName("memory")
HUGEPAGES_PREFIX = "hugepages-"


@attrs.frozen
class MemoryBlock:
    """Block of ``size`` bytes of memory on a set of NUMA nodes.

    ``type`` is ``memory`` or ``hugepages-<size>``.
    """

    type: str
    size: int
    nodes: tuple[int, ...]


@attrs.frozen
class CpusAndMemory:
    """CPU IDs and memory blocks, either allocated to a container or pod, or allocatable."""

    cpu_ids: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()


class HintProvider(Protocol):
    """Provider of topology hints for some resources. It also allocates these resources
    (``HintProvider``, topologymanager/topology_manager.go, v1.32)."""

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return the hints for one container, by resource; empty if the container requests none of
        the provider's resources."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return the hints for the pod as a whole, by resource."""

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """Return a copy of the provider in which the container's request is allocated.

        Returns the provider itself if the container requests none of the provider's resources, or
        already has them.
        ``affinity`` is the set of NUMA nodes to prefer; None means no preference. Raises
        ``AllocationError`` if the request cannot be met.
        """

    def release(self, pod_uid: PodUid) -> Self:
        """Return a copy of the provider in which nothing is allocated to the pod."""

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return the CPUs and memory allocated to a container, for the PodResources API."""

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """Return all CPUs and memory allocated to a pod's containers. CPUs or memory that several
        containers use count once."""

    def allocatable(self) -> CpusAndMemory:
        """Return all CPUs and memory that can be allocated, including those in use."""


def is_guaranteed(pod: Pod) -> bool:
    """True if every container has CPU and memory limits, and its requests equal these limits
    (``ComputePodQOS``, pkg/apis/core/v1/helper/qos, v1.32).

    Only such pods get exclusive CPUs and memory.
    """
    return all(
        # A limit of 0 counts as missing. The API server sets a missing request to the limit.
        container.limits.get(name, 0) > 0
        and container.requests.get(name, container.limits[name]) == container.limits[name]
        for container, _ in pod.all_containers()
        for name in (CPU, MEMORY)
    )


def makes_reusable(pod: Pod, container: Container) -> bool:
    """True if the container is an ordinary init container. Later containers may then reuse its CPUs
    and memory."""
    is_init = any(init.name == container.name for init in pod.init_containers)
    return is_init and not container.restartable


def combined(parts: Iterable[CpusAndMemory]) -> CpusAndMemory:
    """Return the CPU IDs and memory blocks of all ``parts`` in one ``CpusAndMemory``.

    Memory blocks with the same type and NUMA nodes become one block with the sum of their sizes.
    """
    cpu_ids: set[int] = set()
    sizes: dict[tuple[str, tuple[int, ...]], int] = {}
    for part in parts:
        cpu_ids.update(part.cpu_ids)
        for block in part.memory:
            key = (block.type, block.nodes)
            sizes[key] = sizes.get(key, 0) + block.size
    memory = (MemoryBlock(type_, size, nodes) for (type_, nodes), size in sorted(sizes.items()))
    return CpusAndMemory(tuple(sorted(cpu_ids)), tuple(memory))


class HintProviders:
    """The node's hint providers other than the device manager, with their allocations.

    CPUs and memory of a container are allocated during the admission, so concurrent admissions
    cannot use them. If the pod is rejected later, ``release`` frees them.
    """

    def __init__(self, providers: Iterable[HintProvider] = ()) -> None:
        self._providers = tuple(providers)

    def providers(self) -> tuple[HintProvider, ...]:
        """Return the current providers. A provider is an immutable value, so a restarted kubelet
        can continue with it."""
        return self._providers

    def hints(self, pod: Pod, container: Container) -> list[ProviderHints]:
        """Return each provider's hints for one container."""
        return [provider.hints(pod, container) for provider in self._providers]

    def pod_hints(self, pod: Pod) -> list[ProviderHints]:
        """Return each provider's hints for the pod as a whole."""
        return [provider.pod_hints(pod) for provider in self._providers]

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> bool:
        """Allocate a container's CPUs and memory; return True if any were allocated.

        Raises AllocationError if a request cannot be met. Earlier allocations of the pod then
        remain until ``release``.
        """
        before = self._providers
        if not before:
            return False
        # Stored only when all providers have allocated: if one raises, all keep their old values.
        self._providers = tuple(
            [provider.allocate(pod, container, affinity) for provider in before]
        )
        # A provider returns itself if it has allocated nothing.
        return any(new is not old for new, old in zip(self._providers, before, strict=True))

    def release(self, pod: PodUid) -> None:
        """Free all CPUs and memory of a pod."""
        self._providers = tuple([provider.release(pod) for provider in self._providers])

    def allocated(self, pod: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return the CPUs and memory allocated to a container."""
        return combined(provider.allocated(pod, container) for provider in self._providers)

    def pod_allocated(self, pod: PodUid) -> CpusAndMemory:
        """Return all CPUs and memory allocated to a pod's containers. CPUs or memory that several
        containers use count once."""
        return combined(provider.pod_allocated(pod) for provider in self._providers)

    def allocatable(self) -> CpusAndMemory:
        """Return all CPUs and memory that can be allocated, including those in use."""
        return combined(provider.allocatable() for provider in self._providers)

    def shared_cpus(self) -> tuple[int, ...]:
        """Return the IDs of the shared CPUs, on which containers without exclusive CPUs run."""
        # Only a CPU manager has shared CPUs, so ``HintProvider`` does not require this attribute.
        pools = (getattr(each, "shared_cpus", 0) for each in self._providers)
        return tuple(bitset.numbers(bitset.union(pools)))

    def __bool__(self) -> bool:
        return bool(self._providers)
