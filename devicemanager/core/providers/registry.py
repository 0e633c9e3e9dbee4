"""All hint providers besides devices, and what pods hold of them: the ledger of the rest."""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.core import bitset
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import CpusAndMemory, HintProvider, combined
from devicemanager.core.topology import ProviderHints


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
