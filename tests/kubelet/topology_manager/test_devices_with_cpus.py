"""Devices together with CPUs and memory: aligned, freed, retained, and visible to clients."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

import podresources
from devicemanager.core.errors import RpcError
from devicemanager.core.pods import Pod
from devicemanager.core.providers.provider import CpusAndMemory, MemoryBlock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.factories import MockKubeletFactory
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import container, pod
from tests.node import GIB, GPU, NIC, TWO, Node, cpus_and_memory, guaranteed, rows

REJECTED = "TopologyAffinityError"


def aligned_node(policy: str = "restricted", **settings: str) -> Node:
    return Node(topology_policy=policy, providers=cpus_and_memory(), **settings)


def memory(gib: int, *nodes: int) -> MemoryBlock:
    return MemoryBlock("memory", gib * GIB, nodes)


# -- alignment --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_cpus_and_memory_are_on_the_devices_node(policy: str, scope: str) -> None:
    node = aligned_node(policy, topology_scope=scope)
    node.plugin(rows("11"))
    admission = node.admit(pod("p", guaranteed(cpus=2, gib=3, gpu=1)))
    assert admission.containers["app"].affinity == (1,)
    assert node.devices("p") == {"app": {GPU: ["d0"]}}
    assert node.share("p") == CpusAndMemory((4, 5), (memory(3, 1),))


def test_without_a_policy_nothing_is_aligned() -> None:
    node = aligned_node("none")
    node.plugin(rows("11"))
    assert node.admit(pod("p", guaranteed(cpus=2, gpu=1))).containers["app"].affinity is None
    assert node.share("p").cpu_ids == (0, 1)


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
@pytest.mark.parametrize("amounts", [{"cpus": 3}, {"gib": 3}])
def test_cpus_or_memory_can_prevent_alignment(policy: str, amounts: dict[str, int]) -> None:
    node = aligned_node(policy)
    node.plugin(rows("111"))
    assert node.admit(pod("p", guaranteed(cpus=2, gib=2, gpu=1))).admitted
    # Node 1 has a free device, but too few CPUs or too little memory.
    before = node.manager.providers()
    assert node.admit(pod("q", guaranteed(gpu=1, **amounts))).reason == REJECTED
    assert node.manager.providers() == before
    assert node.admit(pod("r", guaranteed(cpus=2, gib=2, gpu=1))).admitted
    assert node.share("r") == CpusAndMemory((6, 7), (memory(2, 1),))


@pytest.mark.parametrize(
    ("policy", "affinity"),
    [("best-effort", (0, 1)), ("restricted", (0, 1)), ("single-numa-node", None)],
)
def test_request_larger_than_a_numa_node(policy: str, affinity: tuple[int, ...] | None) -> None:
    node = aligned_node(policy)
    node.plugin(rows("01"))
    admission = node.admit(pod("p", guaranteed(cpus=6, gib=6, gpu=2)))
    if affinity is None:
        assert admission.reason == REJECTED
        return
    assert admission.containers["app"].affinity == affinity
    assert node.share("p") == CpusAndMemory(tuple(range(6)), (memory(6, 0, 1),))


def test_memory_that_fits_nowhere_is_rejected_at_allocation() -> None:
    node = aligned_node("single-numa-node")
    node.plugin(rows("01"))
    admission = node.admit(pod("p", guaranteed(gib=9, gpu=1)))
    assert (admission.reason, admission.message) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to [memorymanager] failed to find NUMA nodes to extend the "
        "current topology hint, which is unexpected",
    )
    assert node.share("p") == CpusAndMemory()


def test_cpus_that_fit_nowhere_are_rejected_by_the_policy() -> None:
    node = aligned_node("restricted")
    assert node.admit(pod("p", guaranteed(cpus=9))).reason == REJECTED


def test_burstable_pods_get_no_exclusive_cpus() -> None:
    node = aligned_node()
    node.plugin(rows("11"))
    assert node.admit(pod("p", guaranteed(gpu=1), container("other"))).admitted
    assert node.share("p") == CpusAndMemory()


# -- freed --------------------------------------------------------------------------------------


def later_container_unavailable(node: Node) -> Pod:
    return pod("p", guaranteed("x", gpu=1), guaranteed("y", gpu=2))


def plugin_rejects(node: Node) -> Pod:
    node.plugin(rows("0"), NIC, "nic.sock", allocate_error=RpcError("Unknown", "no"))
    return pod("p", guaranteed("x", gpu=1), guaranteed("y", nic=1))


def later_cpus_missing(node: Node) -> Pod:
    return pod("p", guaranteed("x", cpus=2, gpu=1), guaranteed("y", cpus=7))


def later_memory_missing(node: Node) -> Pod:
    return pod("p", guaranteed("x", gpu=1), guaranteed("y", gib=8))


def disk_full(node: Node) -> Pod:
    node.store.broken = True
    return pod("p", guaranteed("x", gpu=1))


@pytest.mark.parametrize(
    "rejected",
    [
        later_container_unavailable,
        plugin_rejects,
        later_cpus_missing,
        later_memory_missing,
        disk_full,
    ],
)
@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_rejected_pod_frees_cpus_and_memory(rejected: Callable[[Node], Pod], policy: str) -> None:
    node = aligned_node(policy)
    node.plugin(rows("01"))
    assert node.admit(pod("other", guaranteed())).admitted
    before = node.manager.providers()
    assert not node.admit(rejected(node)).admitted
    assert node.manager.providers() == before
    node.store.broken = False
    assert node.admit(pod("q", guaranteed("x", gpu=1), guaranteed("y", gpu=1))).admitted
    node.manager.self_check()


def test_ended_pod_frees_cpus_and_memory() -> None:
    node = aligned_node()
    before = node.manager.providers()
    assert node.admit(pod("p", guaranteed(cpus=4, gib=4))).admitted
    assert node.manager.providers() != before
    node.terminate("p")
    assert node.manager.providers() == before


def test_waiting_pod_keeps_cpus_and_memory() -> None:
    node = aligned_node("none")
    gpu = node.plugin(rows("01"))
    inner: list[bool] = []

    def meanwhile(_: object) -> None:
        gpu.before_answer = lambda _: None
        inner.append(node.admit(pod("q", guaranteed(cpus=5))).admitted)
        raise RpcError("Unknown", "no")

    gpu.before_answer = meanwhile
    spec = pod("p", guaranteed("x", cpus=4), guaranteed("y", gpu=1))
    assert not node.admit(spec).admitted
    assert inner == [False]
    assert node.admit(pod("r", guaranteed(cpus=8, gib=8))).admitted


# -- retained -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_cpus_and_memory_survive(reboot: bool, scope: str) -> None:
    node = aligned_node(topology_scope=scope)
    node.plugin(rows("0111"))
    spec = pod("p", guaranteed(cpus=2, gib=2, gpu=2))
    before = node.admit(spec, start=True).containers["app"].affinity
    held = node.devices("p"), node.share("p")
    assert before == (1,)
    node.new_process(reboot=reboot)
    plugin = node.plugin(rows("0111"))
    node.readmit()
    assert (node.devices("p"), node.share("p")) == held
    assert plugin.calls == []
    assert node.pods.known("p").phase == "Running"
    # It still counts for other pods.
    assert node.admit(pod("q", guaranteed(cpus=3, gpu=1))).containers["app"].affinity == (0,)
    node.terminate("p", "q")
    assert node.manager.providers() == cpus_and_memory()


def test_pod_rejected_after_a_reboot_frees_cpus_and_memory() -> None:
    node = aligned_node()
    node.plugin(rows("11"))
    assert node.admit(pod("p", guaranteed(cpus=4, gib=4, gpu=2)), start=True).admitted
    node.new_process(reboot=True)
    node.readmit()
    assert node.pods.known("p").phase == "Failed"
    assert node.share("p").cpu_ids == (4, 5, 6, 7)
    node.plugin(rows("11"))
    assert node.admit(pod("q", guaranteed(cpus=4, gib=4, gpu=2))).admitted
    assert node.share("p") == CpusAndMemory()


def test_late_allocation_does_not_change_cpus_and_memory() -> None:
    node = aligned_node("best-effort")
    assert node.admit(pod("p", guaranteed(cpus=2, gpu=1)), start=True).admitted
    share = node.share("p")
    node.plugin(rows(""))
    with pytest.raises(Exception, match=r"^no healthy devices present"):
        node.start("p")
    assert node.share("p") == share
    node.plugin(rows("10"))
    node.start("p")
    assert node.share("p") == share
    # The affinity of the admission still applies.
    assert node.devices("p") == {"app": {GPU: ["d1"]}}


# -- shown to PodResources ----------------------------------------------------------------------


def kubelet_with(make: MockKubeletFactory, layout: str = "0011", **settings: object) -> MockKubelet:
    kubelet = make(Settings(numa=TWO, providers=cpus_and_memory(), **settings))  # type: ignore[arg-type]
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(rows(layout))
    return kubelet


def block(gib: int, *nodes: int) -> podresources.ContainerMemory:
    return podresources.ContainerMemory("memory", gib * GIB, nodes)


def devices_on(node: int, *ids: str) -> tuple[podresources.ContainerDevices, ...]:
    return tuple(podresources.ContainerDevices(GPU, (id_,), (node,)) for id_ in ids)


@pytest.mark.parametrize(
    ("scope", "policy", "is_on", "at_start"),
    [
        ("pod", "best-effort", True, True),
        ("pod", "best-effort", False, False),
        ("pod", "none", True, False),
        ("container", "best-effort", True, False),
    ],
)
def test_pod_level_resources_defer_devices_to_the_start(
    make_mock_kubelet: MockKubeletFactory, scope: str, policy: str, is_on: bool, at_start: bool
) -> None:
    # The device manager ignores AllocatePod (seen in 1.36.3).
    kubelet = kubelet_with(
        make_mock_kubelet,
        topology_policy=policy,
        topology_scope=scope,
        kubelet_version="1.36",
        feature_gates={"PodLevelResourceManagers": is_on},
    )
    spec = attrs.evolve(pod("p", guaranteed("app", cpus=1, gib=1, gpu=1)), has_resources=True)
    assert kubelet.admit(spec, start=False).admitted
    assert kubelet.devices("p") == ({} if at_start else {"app": {GPU: ["d0"]}})
    kubelet.start_pod("p")
    assert kubelet.devices("p") == {"app": {GPU: ["d0"]}}


@pytest.mark.parametrize(
    ("version", "scope", "resources", "pod_level"),
    [
        ("1.37", "container", True, False),
        ("1.37", "pod", False, False),
        ("1.36", "pod", True, False),
        ("1.37", "pod", True, True),
    ],
)
def test_p16_cpus_and_memory_in_podresources(
    make_mock_kubelet: MockKubeletFactory,
    version: str,
    scope: str,
    resources: bool,
    pod_level: bool,
) -> None:
    kubelet = kubelet_with(
        make_mock_kubelet,
        topology_policy="single-numa-node",
        topology_scope=scope,
        kubelet_version=version,
        feature_gates={"PodLevelResourceManagers": True},
    )
    spec = pod(
        "p",
        guaranteed("app", cpus=1, gib=1, gpu=1),
        init=[guaranteed("init", cpus=2, gib=1), guaranteed("side", restartable=True)],
    )
    assert kubelet.admit(attrs.evolve(spec, has_resources=resources)).admitted
    assert kubelet.admit(pod("q", container("app"))).admitted
    with podresources.PodResourcesClient(kubelet.pod_resources_socket) as client:
        listed = client.list()
        got = client.get("p")
        allocatable = client.get_allocatable()
    # The sidecar takes over the init container's memory and one CPU, the app container the other
    # CPU: the pod as a whole never has more than two of either.
    whole = ((0, 1), (block(2, 0),)) if pod_level else ((), ())
    assert listed[0] == got
    assert got == podresources.Pod(
        "p",
        "default",
        (
            podresources.Container("side", (), (0,), (block(1, 0),)),
            podresources.Container("app", devices_on(0, "d0"), (1,), (block(1, 0),)),
        ),
        *whole,
    )
    assert listed[1] == podresources.Pod("q", "default", (podresources.Container("app"),))
    assert allocatable == podresources.Allocatable(
        (*devices_on(0, "d0", "d1"), *devices_on(1, "d2", "d3")),
        tuple(range(8)),
        (block(4, 0), block(4, 1)),
    )


@pytest.mark.parametrize("reboot", [False, True])
def test_podresources_are_the_same_after_a_restart(
    make_mock_kubelet: MockKubeletFactory, reboot: bool
) -> None:
    kubelet = kubelet_with(make_mock_kubelet, topology_policy="restricted")
    for uid in ("first", "p"):
        assert kubelet.admit(pod(uid, guaranteed(cpus=1, gpu=1 if uid == "first" else 0))).admitted
    kubelet.terminate("first")
    with podresources.PodResourcesClient(kubelet.pod_resources_socket) as client:
        before = client.list()
        # Not the first CPU, although it is free now.
        assert before[0].containers[0].cpu_ids == (1,)
        kubelet.reboot() if reboot else kubelet.restart()
        assert client.list() == before
        kubelet.terminate("p")
        assert client.list() == ()
