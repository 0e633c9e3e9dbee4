"""A hint provider for CPUs and memory with fixed hints and results, as in the Go program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from devicemanager.core import bitset
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod
from devicemanager.core.providers.provider import CPU, CpusAndMemory, MemoryBlock
from devicemanager.core.topology import Hint, ProviderHints


class OtherProvider:
    """Hints for containers that request CPUs. All containers get the same CPUs and memory."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        hints = described.get("hints")
        self._hints = (
            None
            if hints is None
            else tuple(Hint(bitset.of(each["nodes"]), each["preferred"]) for each in hints)
        )
        self._has = CpusAndMemory(
            tuple(described.get("cpus") or ()),
            tuple(
                MemoryBlock(block["type"], block["size"], tuple(block["nodes"]))
                for block in described.get("memory") or ()
            ),
        )

    def hints(self, pod: Pod, container: Container) -> ProviderHints:
        return {CPU: self._hints} if container.limits.get(CPU) else {}

    def pod_hints(self, pod: Pod) -> ProviderHints:
        asks = any(container.limits.get(CPU) for container, _ in pod.all_containers())
        return {CPU: self._hints} if asks else {}

    def allocate(self, pod: Pod, container: Container, affinity: int | None) -> Self:
        return self

    def release(self, pod_uid: PodUid) -> Self:
        return self

    def allocated(self, pod_uid: PodUid, container: ContainerName) -> CpusAndMemory:
        return self._has

    def pod_allocated(self, pod_uid: PodUid) -> CpusAndMemory:
        return self._has

    def allocatable(self) -> CpusAndMemory:
        return self._has
