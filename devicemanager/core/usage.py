"""CPU, memory and GPUs that containers use.

Containers do not run. The values are set in advance, for example by annotations of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Container
from devicemanager.core.quantity import NANOS, parse_quantity

_CPU: Final = ResourceName("cpu")
_MEMORY: Final = ResourceName("memory")
# metrics-server drops a pod if a container uses no CPU or no memory.
IDLE_CORES: Final = 0.001
"""Minimum CPU usage of a container, and of a node without pods, in cores."""
IDLE_MEMORY: Final = 1 << 20
"""Minimum memory usage of a container, and of a node without pods, in bytes."""


@attrs.frozen
class Amount:
    """Used amount of a resource: in cores or bytes, or as a share of the container's request."""

    value: float = 0.0
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> Amount:
        """Parse a quantity such as ``250m`` or ``1Gi``, or a percentage such as ``80%``.

        A percentage is a share of the container's request. Raises ValueError for any other text.
        """
        is_share = text.endswith("%")
        try:
            value = parse_quantity(text.removesuffix("%")) / NANOS
        except ValueError:
            value = -1.0
        if value < 0:
            raise ValueError(
                f"invalid usage {text[:60]!r}: use a form such as 250m, 1Gi or 80% (of the request)"
            )
        return cls(value / 100 if is_share else value, is_share)

    @classmethod
    def parse_share(cls, text: str) -> Amount:
        """Parse a percentage up to 100%. Raises ValueError for any other text."""
        try:
            amount = cls.parse(text)
        except ValueError:
            amount = _ZERO
        if amount.is_share and amount.value <= 1:
            return amount
        raise ValueError(f"invalid usage {text[:60]!r}: use a percentage up to 100%, such as 80%")

    def of(self, request: float) -> float:
        """Return the used amount in the unit of ``request``, such as cores or bytes.

        ``request`` is the amount that counts as 100 %, such as the container's request.
        """
        return self.value * request if self.is_share else self.value


_ZERO: Final = Amount()


@attrs.frozen
class Usage:
    """Simulated use of CPU, memory and GPUs by each running container of a pod."""

    cpu: Amount = _ZERO
    memory: Amount = _ZERO
    gpu: Amount = _ZERO
    """Utilization of each GPU of the container, as a share."""
    gpu_memory: Amount = _ZERO
    """Used memory of each GPU, in bytes or as a share of the GPU's memory."""

    def cores(self, container: Container) -> float:
        """Return the CPU usage of a running container in cores."""
        # A Container counts CPUs in thousandths.
        return max(IDLE_CORES, self.cpu.of(container.requests.get(_CPU, 0) / 1000))

    def memory_bytes(self, container: Container) -> int:
        """Return the working set of a running container in bytes."""
        return max(IDLE_MEMORY, int(self.memory.of(container.requests.get(_MEMORY, 0))))


IDLE: Final = Usage()
"""Usage of a pod whose containers all use the minimum."""
_NONE: Final[Mapping[ContainerName, float]] = {}


@attrs.frozen
class PodUsage:
    """Usage of a pod from the time ``since`` on, and the CPU time that its containers used before
    ``since``."""

    usage: Usage
    since: float = 0.0
    """Time since which ``usage`` applies, in seconds since the epoch."""
    before: Mapping[ContainerName, float] = _NONE
    """CPU time in seconds that each container had used by the time ``since``, by container name.
    Contains only the containers that were running at this time."""

    def cpu_seconds(self, container: Container, started_at: float, now: float) -> float:
        """Return the CPU time that a container has used from ``started_at`` to ``now``, in seconds.

        ``started_at`` and ``now`` are in seconds since the epoch.
        """
        # A container that started after ``since`` has a new counter, as after a restart on a real
        # node.
        before = self.before.get(container.name, 0.0) if started_at <= self.since else 0.0
        return before + self.usage.cores(container) * max(0.0, now - max(started_at, self.since))

    def changed(
        self, usage: Usage, running: Iterable[tuple[Container, float]], now: float
    ) -> PodUsage:
        """Return a new ``PodUsage``, in which the pod has ``usage`` from the time ``now`` on.

        ``running`` has each running container of the pod with its start time. All times are in
        seconds since the epoch.
        """
        before = {each.name: self.cpu_seconds(each, at, now) for each, at in running}
        return PodUsage(usage, now, before)


@attrs.define
class CpuCounter:
    """CPU time of a node. It includes pods that have ended, so it never decreases."""

    updated: float
    """Time of the last update, in seconds since the epoch."""
    seconds: float = 0.0

    def update(self, cores: float, now: float) -> float:
        """Add the CPU time of ``cores`` cores since the last update, and return the total in
        seconds."""
        # The system clock can be set back. Prometheus would take a lower counter for a restart.
        self.seconds += cores * max(0.0, now - self.updated)
        self.updated = max(now, self.updated)
        return self.seconds
