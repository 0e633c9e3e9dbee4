"""The metrics of one mock kubelet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from devicemanager.core.podstatus.containers import Running, Terminated
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.telemetry import NodeInfo
from devicemanager.observe.metrics import families
from devicemanager.observe.metrics.exposition import text_of
from devicemanager.observe.metrics.reader import Reader

__all__ = ["KubeletMetrics", "node_text", "resource_text"]


class KubeletMetrics(Collector):
    """Counts what happens to a kubelet from now until ``close``; a collector, in a registry of
    its own (``registry``).

    ``wake`` has to let ``catch_up`` be called soon, on a thread that may take its time. May be
    used from any thread. Nothing here waits for a plugin.
    """

    def __init__(self, kubelet: MockKubelet, wake: Callable[[], None] | None = None) -> None:
        self._kubelet = kubelet
        self._reader = Reader(kubelet, wake)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def close(self) -> None:
        """Count no more."""
        self._reader.close()

    def catch_up(self) -> None:
        """Count what has been noted."""
        self._reader.read(lambda _: None)

    def text(self) -> bytes:
        """Everything, in Prometheus' text form."""
        return text_of(self.registry)

    def collect(self) -> Iterable[Metric]:
        """The families that the kubelet's version has, as of now."""
        kubelet = self._kubelet
        names = kubelet.settings.behaviour.admission_metrics
        return [
            *self._reader.read(
                lambda tally: [*families.of_plugins(tally), *families.of_admissions(tally, names)]
            ),
            *families.of_pod_resources(kubelet.telemetry.pod_resources_counters()),
            *_Now(kubelet).collect(),
        ]

    def describe(self) -> Iterable[Metric]:
        """Nothing: families come and go with what happens."""
        return []


def node_text(node: NodeInfo) -> bytes:
    """Gauges of a node whose kubelet nobody counts for: its pods, containers and devices."""
    return text_of(_Now(node))


def resource_text(node: NodeInfo) -> bytes:
    """What a kubelet serves at ``/metrics/resource``, as far as there is something to tell:
    nothing runs here that would take CPU or memory."""
    return text_of(_Resources(node))


class _Now(Collector):
    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        pods = running = exited = 0
        telemetry = self._node.telemetry
        for _, statuses in telemetry.containers():
            states = [status.state for status in statuses]
            here = sum(isinstance(state, Running) for state in states)
            pods += here > 0
            running += here
            exited += sum(isinstance(state, Terminated) for state in states)
        return [
            *families.of_pods(self._node.settings.node_name, pods, running, exited),
            *families.of_devices(telemetry.device_counts()),
        ]


class _Resources(Collector):
    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        started = (
            ((str(status.name), pod.name, pod.namespace), status.state.started_at)
            for pod, statuses in self._node.telemetry.containers()
            for status in statuses
            if isinstance(status.state, Running) and status.state.started_at is not None
        )
        return families.of_resources(started, self._node.settings.behaviour.scrape_errors)
