"""Convert the counts of a kubelet to the metrics of the simulated kubelet version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from devicemanager.core.pods import Pod
from devicemanager.kubelet.gpus import GpuStats
from devicemanager.kubelet.pods.usage import NodeStats, Used
from devicemanager.kubelet.telemetry import DeviceCounts
from devicemanager.observe.metrics.tally import Histogram, Tally

__all__ = [
    "counter", "of_admissions", "of_claims", "of_devices", "of_dra", "of_gpus", "of_plugins",
    "of_pod_resources", "of_pods", "of_pods_api", "of_resources", "of_skips",
    "of_usage",
]  # fmt: skip

_Series = Iterable[tuple[Mapping[str, str], float]]
_SKIPS = {
    "NodePrepareResources": "dra_node_prepare_skips_total",
    "NodeUnprepareResources": "dra_node_unprepare_skips_total",
}


def of_plugins(tally: Tally) -> Iterator[Metric]:
    """Yield the metrics of plugin registrations and Allocate calls."""
    yield counter(
        "kubelet_device_plugin_registration_total",
        "Register calls, including rejected ones, by resource.",
        (({"resource_name": name}, count) for name, count in sorted(tally.registrations.items())),
    )
    yield _histogram(
        "kubelet_device_plugin_alloc_duration_seconds",
        "Duration of Allocate calls, by resource.",
        {(name,): histogram for name, histogram in sorted(tally.allocations.items())},
        ["resource_name"],
    )


def of_dra(tally: Tally, services: Mapping[str, str], *, inverted: bool) -> Iterator[Metric]:
    """Yield the durations of the DRA manager's operations and of its calls to drivers.

    ``services``: the version of the DRA API that each driver serves, by driver; the default is
    ``v1``.
    ``inverted``: True to invert the label ``is_error``, as kubelets before 1.36 do.
    """
    if not tally.prepared:
        return
    yield _histogram(
        "dra_operations_duration_seconds",
        "Time to prepare or unprepare the ResourceClaims of a pod.",
        {
            (operation, str(failed is not inverted).lower()): histogram
            for (operation, failed), histogram in sorted(tally.prepared.items())
        },
        ["operation_name", "is_error"],
    )
    yield _histogram(
        "dra_grpc_operations_duration_seconds",
        "Duration of calls to DRA drivers.",
        {
            (driver, f"/k8s.io.kubelet.pkg.apis.dra.{service}.DRAPlugin/{rpc}", code): histogram
            for (driver, rpc, code), histogram in sorted(tally.driver_calls.items())
            # The calls of a driver stay counted after it has gone, when it is not in ``services``.
            for service in (services.get(driver, "v1"),)
        },
        ["driver_name", "method_name", "grpc_status_code"],
    )


def of_claims(drivers: Iterable[Iterable[str]]) -> Iterator[Metric]:
    """Yield the number of ResourceClaims in use, by driver.

    ``drivers`` has one item per claim in use: the names of the claim's drivers.
    """
    # The kubelet counts each claim once under ``<any>``, even if it has several drivers.
    counts: dict[str, int] = {"<any>": 0}
    for each in drivers:
        for name in ("<any>", *each):
            counts[name] = counts.get(name, 0) + 1
    yield _gauge(
        "dra_resource_claims_in_use",
        "ResourceClaims in use by pods of the node, by driver.",
        (({"driver_name": name}, count) for name, count in sorted(counts.items())),
    )


def of_skips(skips: Iterable[tuple[str, str, int]]) -> Iterator[Metric]:
    """Yield the counters of RPCs that the kubelet skips, because the driver's devices do not need
    them.

    ``skips`` has tuples of RPC, DRA driver and number of skipped calls.
    """
    by_rpc: dict[str, list[tuple[dict[str, str], float]]] = {}
    for rpc, driver, count in skips:
        by_rpc.setdefault(rpc, []).append(({"driver_name": driver}, count))
    for rpc, name in _SKIPS.items():
        if rpc in by_rpc:
            text = f"{rpc} calls that were not made, because the devices do not need them."
            yield counter(name, text, by_rpc[rpc])


def of_admissions(tally: Tally, names: Iterable[str]) -> Iterator[Metric]:
    """Yield the admission metrics that ``names`` lists. Each kubelet version has its own list."""
    counters: dict[str, tuple[str, _Series]] = {
        "kubelet_topology_manager_admission_requests_total": (
            "Admissions handled by the Topology Manager.",
            [({}, tally.admissions.count)],
        ),
        "kubelet_topology_manager_admission_errors_total": (
            "Admissions that failed in the Topology Manager: not aligned, or not allocated.",
            [({}, tally.errors)],
        ),
        "kubelet_admission_rejections_total": (
            "Rejected pods, by reason.",
            [({"reason": reason}, count) for reason, count in sorted(tally.rejections.items())],
        ),
        "kubelet_container_aligned_compute_resources_count": (
            "Containers or pods whose resources are all on one NUMA node.",
            _by_scope(tally, tally.aligned),
        ),
        "kubelet_container_aligned_compute_resources_failure_count": (
            "Containers or pods whose resources did not fit on one NUMA node.",
            _by_scope(tally, tally.not_aligned),
        ),
    }
    for name in names:
        if name in counters:
            text, series = counters[name]
            yield counter(name, text, series)
        elif name == "kubelet_topology_manager_admission_duration_ms":
            text = "Duration of admissions in the Topology Manager, in whole milliseconds."
            yield _histogram(name, text, {(): tally.admissions}, [])


def of_pod_resources(counts: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """Yield the counters of PodResources calls.

    ``counts`` maps pairs of metric name and API version to the number of calls.
    """
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for (name, version), count in counts.items():
        by_name.setdefault(name, []).append(({"server_api_version": version}, count))
    for name, series in by_name.items():
        yield counter(name, "PodResources calls, by API version.", series)


def of_pods_api(counts: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """Yield the counters of the Pods API: its calls, and its dropped watch events.

    An event is dropped, and its watch ends, if the queue of the watch is full. ``counts`` maps
    pairs of metric name and status code to numbers. For dropped events, the code is empty.
    """
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for (name, code), count in counts.items():
        labels = {"server_api_version": "v1alpha1", "status_code": code} if code else {}
        by_name.setdefault(name, []).append((labels, count))
    for name, series in by_name.items():
        is_calls = "requests" in name
        text = "Calls to the Pods API, by status." if is_calls else "Events that closed a watch."
        yield counter(name, text, series)


def of_pods(node: str, pods: int, running: int, exited: int) -> Iterator[Metric]:
    """Yield the gauges ``kubelet_node_name``, ``kubelet_running_pods`` (the number of pods with a
    running container) and ``kubelet_running_containers`` (the number of containers by state)."""
    yield _gauge("kubelet_node_name", "The node's name; always 1.", [({"node": node}, 1)])
    yield _gauge("kubelet_running_pods", "Pods with a running container.", [({}, pods)])
    yield _gauge(
        "kubelet_running_containers",
        "Containers, by state.",
        [({"container_state": "running"}, running), ({"container_state": "exited"}, exited)],
    )


def of_devices(counts: Mapping[str, DeviceCounts]) -> Iterator[Metric]:
    """Yield the gauges of devices. A real kubelet does not have these metrics."""
    for name, text in (
        ("capacity", "Devices advertised by plugins, by resource."),
        ("allocatable", "Healthy devices, allocated or not, by resource."),
        ("held", "Devices allocated to containers, by resource."),
    ):
        series = (
            ({"resource_name": resource}, float(getattr(each, name)))
            for resource, each in counts.items()
        )
        yield _gauge(f"devicemanager_devices_{name}", text, series)


def of_resources(
    started: Iterable[tuple[tuple[str, str, str], float]], errors: Iterable[str]
) -> Iterator[Metric]:
    """Yield the start times of containers, and gauges that report errors of the scrape.

    ``started`` has pairs ``((container, pod, namespace), time)``, with the start time in seconds
    since the epoch. ``errors`` has the names of the gauges that report errors. These gauges are
    always 0, which means success.
    """
    yield _gauge(
        "container_start_time_seconds",
        "Start time of the container, in seconds since the epoch.",
        (
            ({"container": container, "pod": pod, "namespace": namespace}, at)
            for (container, pod, namespace), at in started
        ),
    )
    # Always 0, because a mock kubelet can always read its containers.
    for name in errors:
        yield _gauge(name, "1 if the container metrics could not be read, else 0.", [({}, 0)])


def of_usage(stats: NodeStats) -> Iterator[Metric]:
    """Yield the CPU time and the working set of a node, its pods and their containers."""
    levels: list[tuple[str, list[tuple[Mapping[str, str], Used]]]] = [
        ("node", [({}, stats.used)]),
        ("pod", [(_pod_labels(each.pod), each.used) for each in stats.pods]),
        (
            "container",
            [
                ({"container": one.name, **_pod_labels(each.pod)}, one.used)
                for each in stats.pods
                for one in each.containers
            ],
        ),
    ]
    for level, used in levels:
        yield counter(
            f"{level}_cpu_usage_seconds_total",
            f"CPU time of the {level} in core-seconds.",
            [(labels, each.cpu_seconds) for labels, each in used],
        )
        yield _gauge(
            f"{level}_memory_working_set_bytes",
            f"Working set of the {level} in bytes.",
            [(labels, each.memory) for labels, each in used],
        )


def of_gpus(node: str, gpus: Sequence[GpuStats]) -> Iterator[Metric]:
    """Yield the utilization and the memory of GPUs, with the names and labels of dcgm-exporter."""
    labels = {
        index: {
            "gpu": str(index),
            "UUID": each.id,
            "device": f"nvidia{index}",
            "modelName": each.model,
            "Hostname": node,
            "container": each.container,
            "namespace": "" if each.pod is None else each.pod.namespace,
            "pod": "" if each.pod is None else each.pod.name,
        }
        for index, each in enumerate(gpus)
    }
    for name, text, value in (
        ("GPU_UTIL", "Utilization of the GPU in percent.", attrgetter("utilization")),
        ("FB_USED", "Used memory of the GPU in MiB.", attrgetter("used")),
        ("FB_FREE", "Free memory of the GPU in MiB.", attrgetter("free")),
    ):
        series = ((labels[index], value(each)) for index, each in enumerate(gpus))
        yield _gauge(f"DCGM_FI_DEV_{name}", text, series)


def _pod_labels(pod: Pod) -> Mapping[str, str]:
    return {"pod": pod.name, "namespace": pod.namespace}


def _by_scope(tally: Tally, count: int) -> list[tuple[Mapping[str, str], float]]:
    # The kubelet starts with both scopes at 0, unless the policy is ``none``.
    if not tally.aligns:
        return []
    return [
        ({"scope": scope, "boundary": "numa_node"}, count if per_pod is tally.per_pod else 0)
        for scope, per_pod in (("container", False), ("pod", True))
    ]


def counter(name: str, text: str, series: _Series) -> Metric:
    """Return a counter metric. Its name can lack the suffix ``_total``, as in the kubelet."""
    # ``CounterMetricFamily`` would also add the suffix to the names of the samples.
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
    name: str, text: str, histograms: Mapping[tuple[str, ...], Histogram], labels: list[str]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in histograms.items():
        # As in Go, a whole bound has no decimal point: ``1``, where Python would write ``1.0``.
        buckets = [(f"{bound:g}", count) for bound, count in histogram.cumulative()]
        family.add_metric([*values], [*buckets, ("+Inf", histogram.count)], histogram.sum)
    return family
