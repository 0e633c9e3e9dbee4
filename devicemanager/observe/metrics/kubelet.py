"""Collector of the metrics of one mock kubelet."""

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

__all__ = ["KubeletMetrics", "gpu_text", "node_text", "resource_text"]


class KubeletMetrics(Collector):
    """Collector of a kubelet's metrics. Thread-safe.

    It counts events and calls from its creation until ``close``. The attribute ``registry``
    contains only the metrics of this kubelet. The function ``wake`` is called when many events are
    queued. It must return immediately, and make another thread call ``catch_up`` soon. No method
    waits for a plugin.
    """

    def __init__(self, kubelet: MockKubelet, wake: Callable[[], None] | None = None) -> None:
        self._kubelet = kubelet
        self._reader = Reader(kubelet, wake)
        # The global registry would mix the metrics of all kubelets in this process.
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def close(self) -> None:
        """Stop counting events and calls."""
        self._reader.close()

    def catch_up(self) -> None:
        """Count the queued events and calls."""
        self._reader.read(lambda _: None)

    def text(self) -> bytes:
        """Return all metrics as Prometheus text."""
        return text_of(self.registry)

    def collect(self) -> Iterable[Metric]:
        """Return the current metric families of the kubelet's version."""
        kubelet = self._kubelet
        behaviour = kubelet.settings.behaviour
        names, inverted = behaviour.admission_metrics, behaviour.dra_error_label_inverted
        # One snapshot, so that the DRA metrics of a scrape agree with each other.
        dra = kubelet.telemetry.dra()
        services = {each.driver: each.service for each in dra.drivers}
        # Families are built inside ``read``, because the tally must not change during this.
        return [
            *self._reader.read(
                lambda tally: [
                    *families.of_plugins(tally),
                    *families.of_admissions(tally, names),
                    *families.of_dra(tally, services, inverted=inverted),
                ]
            ),
            *(
                families.of_claims(each.drivers for each in dra.claims if each.held)
                if behaviour.dra_counts_claims and dra.drivers
                else ()
            ),
            *families.of_skips((each.rpc, each.driver, each.count) for each in dra.skipped),
            *families.of_pod_resources(kubelet.telemetry.pod_resources_counters()),
            *families.of_pods_api(kubelet.telemetry.pods_api_counters()),
            *_Now(kubelet).collect(),
        ]

    def describe(self) -> Iterable[Metric]:
        """Return no metric families, because the families of ``collect`` depend on past events."""
        # Without this method, a registry with ``auto_describe`` would call ``collect``.
        return []


def node_text(node: NodeInfo) -> bytes:
    """Render the gauges of a node's pods, containers and devices as Prometheus text, without
    counters."""
    return text_of(_Now(node))


def resource_text(node: NodeInfo) -> bytes:
    """Render the metrics of ``/metrics/resource`` as Prometheus text.

    Only nodes in a cluster have CPU and memory metrics. The user sets their values, because
    containers do not run (``core.usage``).
    """
    return text_of(_Resources(node))


def gpu_text(node: NodeInfo) -> bytes:
    """Render the utilization and the memory of a node's GPUs as Prometheus text."""
    return text_of(_Gpus(node))


class _Now(Collector):
    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        pods = running = exited = 0
        telemetry = self._node.telemetry
        for _, statuses in telemetry.containers():
            states = [status.state for status in statuses]
            running_here = sum(isinstance(state, Running) for state in states)
            pods += running_here > 0
            running += running_here
            exited += sum(isinstance(state, Terminated) for state in states)
        return [
            *families.of_pods(self._node.settings.node_name, pods, running, exited),
            *families.of_devices(telemetry.device_counts()),
        ]


class _Resources(Collector):
    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        # A status that was read back from the API can lack the start time.
        started = (
            ((str(status.name), pod.name, pod.namespace), status.state.started_at)
            for pod, statuses in self._node.telemetry.containers()
            for status in statuses
            if isinstance(status.state, Running) and status.state.started_at is not None
        )
        usage = self._node.telemetry.usage(self._node.clock.time())
        return [
            *(() if usage is None else families.of_usage(usage)),
            *families.of_resources(started, self._node.settings.behaviour.scrape_errors),
        ]


class _Gpus(Collector):
    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        return families.of_gpus(self._node.settings.node_name, self._node.telemetry.gpus())
