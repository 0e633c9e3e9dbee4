"""Resources besides devices that hint at NUMA nodes: what they all have in common.

A provider is an immutable value. ``allocate`` and ``release`` return the provider as it
would be afterwards: whoever admits a pod keeps the new value, or drops it and nothing
has happened. A rejection half way through a pod therefore needs no undoing.
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
    """What a pod holds, or could get, of resources other than devices."""

    cpu_ids: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()


class HintProvider(Protocol):
    """One more resource that takes part in topology alignment.

    ``HintProvider`` (topologymanager/topology_manager.go, v1.32).
    """

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Hints by resource for one container; empty if it wants nothing from here."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Hints by resource for the pod as a whole."""

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        """The provider once this container holds its share; itself if it wants nothing.

        ``affinity`` is the set of nodes to prefer, ``None`` for any. Raises
        ``AllocationError`` when the request cannot be met; what is held already stays.
        """

    def release(self, pod_uid: PodUid) -> Self:
        """The provider once the pod holds nothing."""

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        """What a container holds, for PodResources."""

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        """What a pod's containers hold together."""

    def allocatable(self) -> CpusAndMemory:
        """Everything there is to hand out, in use or not."""


def is_guaranteed(pod: Pod) -> bool:
    """Whether every container's CPU and memory requests are its limits.

    Only then are CPUs and memory handed out exclusively. ``ComputePodQOS``
    (pkg/apis/core/v1/helper/qos, v1.32).
    """
    return all(
        container.limits.get(name, 0) > 0
        and container.requests.get(name, container.limits[name]) == container.limits[name]
        for container, _ in pod.all_containers()
        for name in (CPU, MEMORY)
    )


def makes_reusable(pod: Pod, container: Container) -> bool:
    """Whether later containers may take what this one holds: ordinary init containers."""
    is_init = any(init.name == container.name for init in pod.init_containers)
    return is_init and not container.restartable


def combined(parts: Iterable[CpusAndMemory]) -> CpusAndMemory:
    """All parts as one: CPUs sorted, memory added up by type and nodes."""
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
    """CPUs, memory and whatever else was configured, with what pods hold of it.

    A container's share is taken at once, so that other pods see it, and given back with
    ``release`` when the pod is rejected later on.
    """

    def __init__(self, providers: Iterable[HintProvider] = ()) -> None:
        self._providers = tuple(providers)

    def providers(self) -> tuple[HintProvider, ...]:
        """The providers as they are now: values, to hand on to a restarted kubelet."""
        return self._providers

    def hints(self, pod: Pod, container: Container) -> list[ProviderHints]:
        """What every provider says of one container."""
        return [provider.hints(pod, container) for provider in self._providers]

    def pod_hints(self, pod: Pod) -> list[ProviderHints]:
        """What every provider says of the pod as a whole."""
        return [provider.pod_hints(pod) for provider in self._providers]

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> bool:
        """Take a container's share of everything. Returns whether anything changed.

        Raises AllocationError; what was taken before it stays until ``release``.
        """
        before = self._providers
        if not before:
            return False
        self._providers = tuple(
            [provider.allocate(pod, container, affinity) for provider in before]
        )
        return any(new is not old for new, old in zip(self._providers, before, strict=True))

    def release(self, pod: PodUid) -> None:
        """The pod holds nothing any more."""
        self._providers = tuple([provider.release(pod) for provider in self._providers])

    def allocated(self, pod: PodUid, container: ContainerName) -> CpusAndMemory:
        """What a container holds."""
        return combined(provider.allocated(pod, container) for provider in self._providers)

    def pod_allocated(self, pod: PodUid) -> CpusAndMemory:
        """What a pod's containers hold combined."""
        return combined(provider.pod_allocated(pod) for provider in self._providers)

    def allocatable(self) -> CpusAndMemory:
        """Everything there is to hand out, in use or not."""
        return combined(provider.allocatable() for provider in self._providers)

    def shared_cpus(self) -> tuple[int, ...]:
        """The CPUs that containers without any of their own run on."""
        pools = (getattr(each, "shared_cpus", 0) for each in self._providers)
        return tuple(bitset.numbers(bitset.union(pools)))

    def __bool__(self) -> bool:
        return bool(self._providers)
