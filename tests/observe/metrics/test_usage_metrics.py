"""The metrics of CPU, memory and GPUs, with their names, labels and values."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from prometheus_client import Metric

from devicemanager.kubelet.gpus import GpuStats
from devicemanager.kubelet.pods.usage import ContainerStats, NodeStats, PodStats, Used
from devicemanager.observe.metrics.families import of_gpus, of_usage
from tests.helpers import pod

TRAIN, IDLE = pod("train"), attrs.evolve(pod("idle"), namespace="ns")


def flat(families: Iterable[Metric]) -> list[tuple[str, str, str, list[tuple[dict, float]]]]:
    """Return name, type, help, and the samples of each family. All samples have one name."""
    found = []
    for family in families:
        names = {sample.name for sample in family.samples}
        assert len(names) <= 1
        samples = [(dict(sample.labels), sample.value) for sample in family.samples]
        found.append((*(names or {family.name}), family.type, family.documentation, samples))
    return found


def test_usage_of_node_pods_and_containers():
    stats = NodeStats(
        Used(1.5, 0.1, 100),
        (
            PodStats(
                TRAIN,
                None,
                Used(2.5, 0.2, 200),
                (
                    ContainerStats("main", 0.0, Used(3.5, 0.3, 300)),
                    ContainerStats("side", 0.0, Used(4.5, 0.4, 400)),
                ),
            ),
            PodStats(IDLE, None, Used(5.5, 0.5, 500), ()),
        ),
    )
    train, idle = {"pod": "train", "namespace": "default"}, {"pod": "idle", "namespace": "ns"}
    main, side = {"container": "main", **train}, {"container": "side", **train}
    expected = []
    for level, cpu, memory in (
        ("node", [({}, 1.5)], [({}, 100)]),
        ("pod", [(train, 2.5), (idle, 5.5)], [(train, 200), (idle, 500)]),
        ("container", [(main, 3.5), (side, 4.5)], [(main, 300), (side, 400)]),
    ):
        seconds = f"CPU time of the {level} in core-seconds."
        working_set = f"Working set of the {level} in bytes."
        expected += [
            (f"{level}_cpu_usage_seconds_total", "counter", seconds, cpu),
            (f"{level}_memory_working_set_bytes", "gauge", working_set, memory),
        ]
    assert flat(of_usage(stats)) == expected


def test_utilization_and_memory_of_gpus():
    gpus = [
        GpuStats("gpu-a", "A100", TRAIN, "main", 75.0, 30, 50),
        GpuStats("gpu-b", "T4", None, "", 0.0, 0, 80),
    ]
    first = {
        "gpu": "0",
        "UUID": "gpu-a",
        "device": "nvidia0",
        "modelName": "A100",
        "Hostname": "node-1",
        "container": "main",
        "namespace": "default",
        "pod": "train",
    }
    second = {
        "gpu": "1",
        "UUID": "gpu-b",
        "device": "nvidia1",
        "modelName": "T4",
        "Hostname": "node-1",
        "container": "",
        "namespace": "",
        "pod": "",
    }
    assert flat(of_gpus("node-1", gpus)) == [
        (f"DCGM_FI_DEV_{name}", "gauge", text, [(first, one), (second, two)])
        for name, text, one, two in (
            ("GPU_UTIL", "Utilization of the GPU in percent.", 75.0, 0.0),
            ("FB_USED", "Used memory of the GPU in MiB.", 30, 0),
            ("FB_FREE", "Free memory of the GPU in MiB.", 50, 80),
        )
    ]


def test_node_without_gpus_has_no_samples():
    assert [samples for *_, samples in flat(of_gpus("node-1", []))] == [[], [], []]
