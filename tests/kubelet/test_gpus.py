"""Utilization and memory of GPUs, and CPU and memory of pods, as exporters report them."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.podstatus.containers import ContainerStatus, Running
from devicemanager.core.status import Health
from devicemanager.core.usage import IDLE_CORES, IDLE_MEMORY, Amount, PodUsage, Usage
from devicemanager.kubelet.gpus import GpuStats, gpu_stats
from devicemanager.kubelet.inventory import DeviceStatus
from devicemanager.kubelet.pods.records import PodRecord, PodStore
from devicemanager.kubelet.pods.usage import ContainerStats, NodeStats, PodStats, Used, node_stats

CPU, MEMORY = ResourceName("cpu"), ResourceName("memory")
ONE, TWO = ContainerName("one"), ContainerName("two")
GPU = "vendor.com/gpu"
MIB = 1 << 20
USAGE = Usage(
    cpu=Amount(0.5, is_share=True),
    memory=Amount(0.25, is_share=True),
    gpu=Amount(0.75, is_share=True),
    gpu_memory=Amount(0.5, is_share=True),
)
POD = Pod(
    PodUid("p"),
    "p",
    "default",
    (
        Container(ONE, requests={CPU: 2000, MEMORY: 400 * MIB}),
        Container(TWO, requests={CPU: 1000, MEMORY: 40 * MIB}),
    ),
)


def running(store: PodStore, pod: Pod = POD, **started: float) -> PodRecord:
    """Add a pod; its named containers have run since these times."""
    record = store.add(pod)
    for name, at in started.items():
        record.running |= {ContainerName(name)}
        record.statuses[ContainerName(name)] = ContainerStatus(ContainerName(name), Running(at))
    return record


def held(id_: str, container: str | None, *, resource: str = GPU, pod: str = "p") -> DeviceStatus:
    return DeviceStatus(
        resource, id_, Health.HEALTHY, None, None if container is None else pod, container
    )


def test_device_of_a_running_container_is_used() -> None:
    store = PodStore()
    record = running(store, one=1.0)
    devices = [
        held("a", "one"),
        held("b", None),
        held("c", "two"),
        held("nic", "one", resource="vendor.com/nic"),
        held("d", "one", pod="unknown"),
    ]
    used = GpuStats("a", "virtual", POD, "one", 0.0, 0, 16384)
    free = [GpuStats(each, "virtual", None, "", 0.0, 0, 16384) for each in "bcd"]
    assert gpu_stats(store, devices) == [used, *free]
    record.usage = PodUsage(USAGE)
    assert gpu_stats(store, devices[:1]) == [GpuStats("a", "virtual", POD, "one", 75.0, 8192, 8192)]


def test_device_of_several_containers_is_used_by_the_running_one() -> None:
    store = PodStore()
    running(store, two=1.0)
    for devices in ([held("a", "one"), held("a", "two")], [held("a", "two"), held("a", "one")]):
        (found,) = gpu_stats(store, devices)
        assert (found.id, found.container) == ("a", "two")


def test_gpus_of_two_resources_can_have_the_same_id() -> None:
    store = PodStore()
    running(store, one=1.0)
    devices = [held("a", "one"), held("a", None, resource="other.com/gpu")]
    assert [each.container for each in gpu_stats(store, devices)] == ["one", ""]


@pytest.mark.parametrize(
    ("labels", "model", "memory"),
    [
        ({}, "virtual", 16384),
        ({"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"}, "A100", 40960),
        ({"nvidia.com/gpu.memory": "many"}, "virtual", 16384),
        ({"nvidia.com/gpu.memory": "²"}, "virtual", 16384),
        ({"nvidia.com/gpu.memory": "-1"}, "virtual", 16384),
        ({"nvidia.com/gpu.memory": ""}, "virtual", 16384),
    ],
)
def test_labels_of_the_node_have_model_and_memory(
    labels: dict[str, str], model: str, memory: int
) -> None:
    store = PodStore()
    store.node_labels = lambda: labels
    assert gpu_stats(store, [held("a", None)]) == [GpuStats("a", model, None, "", 0.0, 0, memory)]


def test_used_memory_is_at_most_the_memory_of_the_gpu() -> None:
    store = PodStore()
    record = running(store, one=1.0)
    for amount, used in [
        (Amount(100 * MIB), 100),
        (Amount(100 * MIB + MIB - 1), 100),
        (Amount(1 << 60), 16384),
    ]:
        record.usage = PodUsage(attrs.evolve(USAGE, gpu_memory=amount))
        (found,) = gpu_stats(store, [held("a", "one")])
        assert (found.used, found.free) == (used, 16384 - used)


class _Counter:
    """Counter of CPU time that notes its updates."""

    def __init__(self) -> None:
        self.updates: list[tuple[float, float]] = []

    def update(self, cores: float, now: float) -> float:
        self.updates.append((cores, now))
        return 77.0


@pytest.fixture
def counted() -> tuple[PodStore, _Counter]:
    store, counter = PodStore(), _Counter()
    store.cpu_counter = counter  # type: ignore[assignment]
    return store, counter


def test_node_outside_of_a_cluster_has_no_usage() -> None:
    store = PodStore()
    running(store, one=1.0).usage = PodUsage(USAGE)
    assert node_stats(store, 9.0) is None


def test_node_without_pods_uses_the_minimum(counted: tuple[PodStore, _Counter]) -> None:
    store, counter = counted
    assert node_stats(store, 9.0) == NodeStats(Used(77.0, IDLE_CORES, IDLE_MEMORY), [])
    assert counter.updates == [(IDLE_CORES, 9.0)]


def test_usage_of_pods_is_added_up(counted: tuple[PodStore, _Counter]) -> None:
    store, counter = counted
    record = running(store, one=10.0, two=12.0)
    record.usage, record.start_time = PodUsage(USAGE), 5.0
    # These have no usage, or do not run.
    running(store, attrs.evolve(POD, uid=PodUid("q"), name="q"), one=1.0)
    running(store, attrs.evolve(POD, uid=PodUid("r"), name="r")).usage = PodUsage(USAGE)
    one, two = Used(10.0, 1.0, 100 * MIB), Used(4.0, 0.5, 10 * MIB)
    pod = PodStats(
        POD,
        5.0,
        Used(14.0, 1.5, 110 * MIB),
        [ContainerStats("one", 10.0, one), ContainerStats("two", 12.0, two)],
    )
    assert node_stats(store, 20.0) == NodeStats(
        Used(77.0, IDLE_CORES + 1.5, IDLE_MEMORY + 110 * MIB), [pod]
    )
    assert counter.updates == [(IDLE_CORES + 1.5, 20.0)]
