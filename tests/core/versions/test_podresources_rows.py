"""PodResources just below and at the version of each difference, without sockets."""

from __future__ import annotations

import pytest

import podresources
from devicemanager import Settings
from devicemanager.kubelet.pod_resources import api_profile
from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    MemorySource,
    View,
    decoding,
)
from podresources.counters import PREFIX, Counters, Kind
from podresources.profile import Profile
from tests.helpers import container, device, pod
from tests.node import Node, cpus_and_memory, guaranteed

DEVICES = (
    ContainerDevices("vendor.com/gpu", ("a", "b"), (0,)),
    ContainerDevices("vendor.com/gpu", ("c",), (0, 1)),
    ContainerDevices("vendor.com/gpu", ("d",)),
)


MEMORY = ContainerMemory("memory", 1 << 30, (0,))


def profile(version: str, **gates: bool) -> Profile:
    return api_profile(Settings(kubelet_version=version, feature_gates=gates))


@pytest.mark.parametrize(
    ("version", "entries"),
    [
        ("1.20", [(("a", "b", "c"), (0,)), (("c",), (1,)), (("d",), ())]),
        (
            "1.21",
            [
                (("a",), (0,)),
                (("b",), (0,)),
                (("c",), (0,)),
                (("c",), (1,)),
                (("d",), ()),
            ],
        ),
    ],
)
def test_p11_entries_per_device(
    version: str, entries: list[tuple[tuple[str, ...], tuple[int, ...]]]
) -> None:
    source = MemorySource([podresources.Pod("p", "default", (Container("c", DEVICES),))])
    view = View(source, profile(version))
    [listed] = decoding.pods_from_bytes(view.list_v1())
    assert [(each.device_ids, each.nodes) for each in listed.containers[0].devices] == entries


GATES = {"DynamicResourceAllocation": True, "KubeletPodResourcesDynamicResources": True}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.30", ClaimResource("", "", "", ("x=y",))),
        ("1.31", ClaimResource("driver", "pool", "device", ("x=y",))),
        ("1.35", ClaimResource("driver", "pool", "device", ("x=y",), "share")),
    ],
)
def test_p13_p15_fields_of_a_claim(version: str, expected: ClaimResource) -> None:
    given = ClaimResource("driver", "pool", "device", ("x=y",), "share")
    claim = DynamicResource("claim", "default", (given,))
    whole = podresources.Pod("p", "default", (Container("c", dynamic_resources=(claim,)),))
    gates = {} if version == "1.35" else GATES
    [found] = profile(version, **gates).pod(whole).containers[0].dynamic_resources
    assert found.claim_resources == (expected,)


@pytest.mark.parametrize(("version", "shared"), [("1.22", True), ("1.23", False)])
def test_p9_cpus_of_a_container_without_exclusive_cpus(version: str, shared: bool) -> None:
    node = Node(kubelet_version=version, providers=cpus_and_memory(cpus=2))
    source = node.source()
    node.plugin([device("a", 0)])
    node.admit(pod("shares", container("app", gpu=1)))

    def cpu_ids() -> dict[str, tuple[int, ...]]:
        return {one.name: one.containers[0].cpu_ids for one in source.pods()}

    assert cpu_ids() == {"shares": (0, 1, 2, 3) if shared else ()}
    node.admit(pod("owns", guaranteed(cpus=1)))
    assert cpu_ids() == {"owns": (0,), "shares": (1, 2, 3) if shared else ()}
    node.terminate("owns")
    assert cpu_ids() == {"shares": (0, 1, 2, 3) if shared else ()}


@pytest.mark.parametrize(
    ("version", "gates", "calls", "counts"),
    [
        ("1.20", {}, ["list"], {"requests_total": 1}),
        ("1.21", {}, ["list", "get_allocatable"], {
            "requests_total": 3, "requests_list": 1, "requests_get_allocatable": 1,
        }),
        ("1.26", {}, ["get_allocatable"], {"requests_total": 2, "requests_get_allocatable": 1}),
        ("1.27", {}, ["get_allocatable", "get"], {
            "requests_total": 2, "requests_get_allocatable": 1, "requests_get": 1,
        }),
    ],
)  # fmt: skip
def test_m1_p17_counted_calls(
    version: str, gates: dict[str, bool], calls: list[Kind], counts: dict[str, int]
) -> None:
    counters = Counters.of(profile(version, **gates))
    for kind in calls:
        counters.requested("v1", kind)
    counted = {name: count for (name, _), count in counters.snapshot().items()}
    assert counted == {f"kubelet_pod_resources_endpoint_{name}": n for name, n in counts.items()}
    counters.failed("v1", "get")
    assert ((f"{PREFIX}_errors_get", "v1") in counters.snapshot()) is (version == "1.27")


@pytest.mark.parametrize(("version", "expected"), [("1.21", ()), ("1.22", (MEMORY,))])
def test_p8_memory(version: str, expected: tuple[ContainerMemory, ...]) -> None:
    whole = podresources.Pod("p", "default", (Container("c", memory=(MEMORY,)),))
    assert profile(version).pod(whole).containers[0].memory == expected
    assert profile(version).allocatable(Allocatable(memory=(MEMORY,))).memory == expected
