"""Hint providers for resources other than devices, and the set of them on a node.

A provider is an immutable value. ``allocate`` and ``release`` return the provider after the
change. A rejected allocation leaves the old value unchanged, so nothing needs to be undone.
``HintProviders`` is the only mutable part: it holds the current values.
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
    """``size`` bytes of ``type`` (``memory`` or ``hugepages-<size>``) on these nodes."""

    type: str
    size: int
    nodes: tuple[int, ...]


@attrs.frozen
class CpusAndMemory:
    """CPUs and memory that are allocated or allocatable."""

    cpu_ids: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()


class HintProvider(Protocol):
    """A resource that takes part in topology alignment (``HintProvider``,
    topologymanager/topology_manager.go, v1.32)."""

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return one container's hints by resource; empty without a matching request."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return the hints by resource for the pod as a whole."""

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """Return the provider after allocating to a container; itself without a request.

        ``affinity`` is the set of nodes to prefer, None for any. Raises ``AllocationError``
        if the request cannot be met.
        """

    def release(self, pod_uid: PodUid) -> Self:
        """Return the provider after freeing everything of a pod."""

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return what is allocated to a container, for PodResources."""

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """Return what is allocated to all containers of a pod."""

    def allocatable(self) -> CpusAndMemory:
        """Return everything that can be allocated, in use or not."""


def is_guaranteed(pod: Pod) -> bool:
    """True if CPU and memory requests of every container equal its limits (``ComputePodQOS``,
    pkg/apis/core/v1/helper/qos, v1.32).

    Only such pods get exclusive CPUs and memory.
    """
    return all(
        container.limits.get(name, 0) > 0
        and container.requests.get(name, container.limits[name]) == container.limits[name]
        for container, _ in pod.all_containers()
        for name in (CPU, MEMORY)
    )


def makes_reusable(pod: Pod, container: Container) -> bool:
    """True if later containers may reuse what this one has: it is an ordinary init
    container."""
    is_init = any(init.name == container.name for init in pod.init_containers)
    return is_init and not container.restartable


def combined(parts: Iterable[CpusAndMemory]) -> CpusAndMemory:
    """Combine the parts: CPUs sorted, memory added up by type and nodes."""
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

    There are no drafts: a container's CPUs and memory are allocated at once, so that
    concurrent admissions see it, and freed with ``release`` if the pod is rejected later.
    """

    def __init__(self, providers: Iterable[HintProvider] = ()) -> None:
        self._providers = tuple(providers)

    def providers(self) -> tuple[HintProvider, ...]:
        """Return the current providers. They are values, so a restarted kubelet can start
        with them."""
        return self._providers

    def hints(self, pod: Pod, container: Container) -> list[ProviderHints]:
        """Return each provider's hints for one container."""
        return [provider.hints(pod, container) for provider in self._providers]

    def pod_hints(self, pod: Pod) -> list[ProviderHints]:
        """Return each provider's hints for the pod as a whole."""
        return [provider.pod_hints(pod) for provider in self._providers]

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> bool:
        """Allocate a container's CPUs and memory; return True if it requested any.

        Raises AllocationError; earlier allocations of the pod remain until ``release``.
        """
        before = self._providers
        if not before:
            return False
        self._providers = tuple(
            [provider.allocate(pod, container, affinity) for provider in before]
        )
        return any(new is not old for new, old in zip(self._providers, before, strict=True))

    def release(self, pod: PodUid) -> None:
        """Free everything of a pod."""
        self._providers = tuple([provider.release(pod) for provider in self._providers])

    def allocated(self, pod: PodUid, container: ContainerName) -> CpusAndMemory:
        """Return what is allocated to a container."""
        return combined(provider.allocated(pod, container) for provider in self._providers)

    def pod_allocated(self, pod: PodUid) -> CpusAndMemory:
        """Return what is allocated to all containers of a pod."""
        return combined(provider.pod_allocated(pod) for provider in self._providers)

    def allocatable(self) -> CpusAndMemory:
        """Return everything that can be allocated, in use or not."""
        return combined(provider.allocatable() for provider in self._providers)

    def shared_cpus(self) -> tuple[int, ...]:
        """Return the CPUs of containers without exclusive CPUs."""
        pools = (getattr(each, "shared_cpus", 0) for each in self._providers)
        return tuple(bitset.numbers(bitset.union(pools)))

    def __bool__(self) -> bool:
        return bool(self._providers)
