"""A kubelet's numbers as metrics of its version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from devicemanager.kubelet.telemetry import DeviceCounts
from devicemanager.observe.metrics.tally import Histogram, Tally

__all__ = [
    "counter", "of_admissions", "of_devices", "of_plugins", "of_pod_resources", "of_pods",
    "of_resources",
]  # fmt: skip

_Series = Iterable[tuple[Mapping[str, str], float]]


def of_plugins(tally: Tally) -> Iterator[Metric]:
    """What plugins did."""
    yield counter(
        "kubelet_device_plugin_registration_total",
        "Calls of Register, rejected ones included, by the resource that they named.",
        (({"resource_name": name}, count) for name, count in sorted(tally.registrations.items())),
    )
    yield _histogram(
        "kubelet_device_plugin_alloc_duration_seconds",
        "How long plugins took for Allocate, by resource.",
        {(name,): found for name, found in sorted(tally.allocations.items())},
        ["resource_name"],
    )


def of_admissions(tally: Tally, names: Iterable[str]) -> Iterator[Metric]:
    """What became of pods: those of these metrics that there are here."""
    made: dict[str, tuple[str, _Series]] = {
        "kubelet_topology_manager_admission_requests_total": (
            "Admissions that came to the topology manager.",
            [({}, tally.admissions.count)],
        ),
        "kubelet_topology_manager_admission_errors_total": (
            "Admissions that failed there: not aligned, or not allocated once aligned.",
            [({}, tally.errors)],
        ),
        "kubelet_admission_rejections_total": (
            "Pods that were rejected, by reason.",
            [({"reason": reason}, count) for reason, count in sorted(tally.rejections.items())],
        ),
        "kubelet_container_aligned_compute_resources_count": (
            "Containers or pods that got everything on one NUMA node.",
            _by_scope(tally, tally.aligned),
        ),
        "kubelet_container_aligned_compute_resources_failure_count": (
            "Containers or pods that could not get everything on one NUMA node.",
            _by_scope(tally, tally.not_aligned),
        ),
    }
    for name in names:
        if name in made:
            text, series = made[name]
            yield counter(name, text, series)
        elif name == "kubelet_topology_manager_admission_duration_ms":
            text = "How long admissions took there, in whole milliseconds."
            yield _histogram(name, text, {(): tally.admissions}, [])


def of_pod_resources(counts: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """Calls of PodResources."""
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for (name, version), count in counts.items():
        by_name.setdefault(name, []).append(({"server_api_version": version}, count))
    for name, series in by_name.items():
        yield counter(name, "Calls of PodResources, by the version of its API.", series)


def of_pods(node: str, pods: int, running: int, exited: int) -> Iterator[Metric]:
    """What is on the node: its name, pods and containers that run, and that have ended."""
    yield _gauge("kubelet_node_name", "The node's name; always 1.", [({"node": node}, 1)])
    yield _gauge("kubelet_running_pods", "Pods of which a container runs.", [({}, pods)])
    yield _gauge(
        "kubelet_running_containers",
        "Containers, by their state.",
        [({"container_state": "running"}, running), ({"container_state": "exited"}, exited)],
    )


def of_devices(counts: Mapping[str, DeviceCounts]) -> Iterator[Metric]:
    """What no kubelet tells here: devices."""
    for name, text in (
        ("capacity", "Devices that plugins list, by resource."),
        ("allocatable", "Healthy devices, held or not, by resource."),
        ("held", "Devices that containers hold, by resource."),
    ):
        series = (
            ({"resource_name": resource}, float(getattr(each, name)))
            for resource, each in counts.items()
        )
        yield _gauge(f"devicemanager_devices_{name}", text, series)


def of_resources(
    started: Iterable[tuple[tuple[str, str, str], float]], errors: Iterable[str]
) -> Iterator[Metric]:
    """When containers (container, pod, namespace) started, and that nothing went wrong."""
    yield _gauge(
        "container_start_time_seconds",
        "When the container started, in seconds since the epoch.",
        (
            ({"container": container, "pod": pod, "namespace": namespace}, at)
            for (container, pod, namespace), at in started
        ),
    )
    for name in errors:
        yield _gauge(name, "1 if this could not be read, else 0.", [({}, 0)])


def _by_scope(tally: Tally, count: int) -> list[tuple[Mapping[str, str], float]]:
    """The kubelet begins with both scopes at 0, unless the policy is ``none``."""
    if not tally.aligns:
        return []
    return [
        ({"scope": scope, "boundary": "numa_node"}, count if per_pod is tally.per_pod else 0)
        for scope, per_pod in (("container", False), ("pod", True))
    ]


def counter(name: str, text: str, series: _Series) -> Metric:
    """Some of the kubelet's counters do not end in ``_total``: see ``exposition``."""
    family = Metric(name.removesuffix("_total"), text, "counter")
    for labels, value in series:
        family.add_sample(name, dict(labels), value)
    return family


def _gauge(name: str, text: str, series: _Series) -> Metric:
    family = GaugeMetricFamily(name, text)
    for labels, value in series:
        family.add_sample(name, dict(labels), value)
    return family


def _histogram(
    name: str, text: str, found: Mapping[tuple[str, ...], Histogram], labels: list[str]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in found.items():
        buckets = [(f"{bound:g}", count) for bound, count in histogram.cumulative()]
        family.add_metric([*values], [*buckets, ("+Inf", histogram.count)], histogram.sum)
    return family
