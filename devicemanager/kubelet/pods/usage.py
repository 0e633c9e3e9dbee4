"""CPU and memory that the pods of a node use, as in the kubelet's summary
(``pkg/kubelet/server/stats/summary.go``)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from devicemanager.core.pods import Container, Pod
from devicemanager.core.usage import IDLE_CORES, IDLE_MEMORY, PodUsage
from devicemanager.kubelet.pods.records import PodRecord, PodStore

__all__ = ["ContainerStats", "NodeStats", "PodStats", "Used", "node_stats"]


@attrs.frozen
class Used:
    """CPU and memory usage of a container, a pod or the node.

    ``cpu_seconds`` is the consumed CPU time, and ``cores`` is the current CPU usage.
    ``memory`` is the working set in bytes.
    """

    cpu_seconds: float
    cores: float
    memory: int


@attrs.frozen
class ContainerStats:
    """Usage of a running container."""

    name: str
    started_at: float
    """Time at which the container was started, in seconds since the epoch."""
    used: Used


@attrs.frozen
class PodStats:
    """Usage of a pod with running containers."""

    pod: Pod
    start_time: float | None
    """Time at which this kubelet first saw the pod, in seconds since the epoch; None if an earlier
    kubelet saw the pod first."""
    used: Used
    containers: Sequence[ContainerStats]


@attrs.frozen
class NodeStats:
    """Usage of a node and its pods."""

    used: Used
    pods: Sequence[PodStats]


def node_stats(store: PodStore, now: float) -> NodeStats | None:
    """Return the usage of the node and its pods at the time ``now`` (seconds since the epoch).

    Return None if the usage is unknown. It is known only for nodes of ``devicemanager join``.
    """
    with store.lock:
        if store.cpu_counter is None:
            return None
        pods = [
            _pod(record, usage, now)
            for record in store.records()
            if (usage := record.usage) is not None and record.running
        ]
        # More than the sum of the pods, because a node without pods uses CPU and memory, too.
        cores = IDLE_CORES + sum(each.used.cores for each in pods)
        # Under the lock: two requests at once would count the time since the last update twice.
        seconds = store.cpu_counter.update(cores, now)
    memory = IDLE_MEMORY + sum(each.used.memory for each in pods)
    return NodeStats(Used(seconds, cores, memory), pods)


def _pod(record: PodRecord, usage: PodUsage, now: float) -> PodStats:
    containers = [_container(each, usage, at, now) for each, at in record.running_since()]
    used = [each.used for each in containers]
    total = Used(
        sum(each.cpu_seconds for each in used),
        sum(each.cores for each in used),
        sum(each.memory for each in used),
    )
    return PodStats(record.pod, record.start_time, total, containers)


def _container(
    container: Container, usage: PodUsage, started_at: float, now: float
) -> ContainerStats:
    rate = usage.usage
    used = Used(
        usage.cpu_seconds(container, started_at, now),
        rate.cores(container),
        rate.memory_bytes(container),
    )
    return ContainerStats(str(container.name), started_at, used)
