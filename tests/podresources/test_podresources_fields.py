"""Every field of the PodResources API: JSON of the tools, profiles and metrics."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from podresources import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    Counters,
    DynamicResource,
    Pod,
    decoding,
    encoding,
)
from podresources.counters import LABEL, PREFIX
from podresources.profile import ALL, Profile
from podresources.rendering import allocatable_data, pod_data

GPU = "vendor.com/gpu"
CLAIM = DynamicResource(
    "claim",
    "claims",
    (
        ClaimResource("a.com", "pool", "dev", ("a.com/x=1",), "share"),
        ClaimResource("a.com", "pool", "other", ("a.com/x=2",)),
        ClaimResource("b.com", "pool", "dev", ("b.com/x=3",)),
    ),
)
MAIN = Container(
    "main",
    devices=(ContainerDevices(GPU, ("a", "b"), (0, 1)), ContainerDevices(GPU, ("c",))),
    cpu_ids=(0, 3),
    memory=(ContainerMemory("memory", 2**40, (1,)), ContainerMemory("hugepages-2Mi", 0)),
    dynamic_resources=(CLAIM,),
)
SIDECAR = Container("sidecar", restartable_init=True)
POD = Pod("p", "ns", (SIDECAR, MAIN), cpu_ids=(7,), memory=(ContainerMemory("memory", 5),))
ALLOCATABLE = Allocatable(MAIN.devices, MAIN.cpu_ids, MAIN.memory)

MEMORY_DATA = [
    {"memory_type": "memory", "size": 2**40, "numa_nodes": [1]},
    {"memory_type": "hugepages-2Mi", "size": 0, "numa_nodes": []},
]
ALLOCATABLE_DATA: dict[str, Any] = {
    "devices": [
        {"resource_name": GPU, "device_ids": ["a", "b"], "numa_nodes": [0, 1]},
        {"resource_name": GPU, "device_ids": ["c"], "numa_nodes": []},
    ],
    "cpu_ids": [0, 3],
    "memory": MEMORY_DATA,
}
CLAIM_DATA = {
    "claim_name": "claim",
    "claim_namespace": "claims",
    "claim_resources": [
        {
            "driver_name": "a.com",
            "pool_name": "pool",
            "device_name": "dev",
            "share_id": "share",
            "cdi_devices": ["a.com/x=1"],
        },
        {
            "driver_name": "a.com",
            "pool_name": "pool",
            "device_name": "other",
            "share_id": None,
            "cdi_devices": ["a.com/x=2"],
        },
        {
            "driver_name": "b.com",
            "pool_name": "pool",
            "device_name": "dev",
            "share_id": None,
            "cdi_devices": ["b.com/x=3"],
        },
    ],
}


def test_tools_json_has_every_field() -> None:
    empty = {"devices": [], "cpu_ids": [], "memory": [], "dynamic_resources": []}
    assert allocatable_data(ALLOCATABLE) == ALLOCATABLE_DATA
    assert pod_data(POD) == {
        "namespace": "ns",
        "name": "p",
        "containers": [
            {"name": "sidecar", **empty},
            {"name": "main", **ALLOCATABLE_DATA, "dynamic_resources": [CLAIM_DATA]},
        ],
        "cpu_ids": [7],
        "memory": [{"memory_type": "memory", "size": 5, "numa_nodes": []}],
    }


def test_every_field_survives_encoding() -> None:
    split = attrs.evolve(
        MAIN, devices=tuple(entry for group in MAIN.devices for entry in group.entries())
    )
    (decoded,) = decoding.pods_from_bytes(encoding.pod_to_bytes(POD))
    assert decoded == attrs.evolve(POD, containers=(SIDECAR, split))
    assert decoding.pod_from_bytes(encoding.pod_to_bytes(POD)) == decoded
    found = decoding.allocatable_from_bytes(encoding.allocatable_to_bytes(ALLOCATABLE))
    assert found == attrs.evolve(ALLOCATABLE, devices=split.devices)
    (old,) = decoding.pods_from_v1alpha1_bytes(encoding.pod_to_v1alpha1_bytes(POD))
    without = tuple(attrs.evolve(each, nodes=()) for each in split.devices)
    assert old == Pod("p", "ns", (Container("main", without),))


def test_grouped_encoding_has_an_entry_per_node() -> None:
    devices = (*MAIN.devices, ContainerDevices(GPU, ("d",), (1,)))
    pod = Pod("p", "ns", (Container("c", devices),))
    (decoded,) = decoding.pods_from_bytes(encoding.pod_to_bytes(pod, grouped=True))
    assert decoded.containers[0].devices == (
        ContainerDevices(GPU, ("a", "b"), (0,)),
        ContainerDevices(GPU, ("a", "b", "d"), (1,)),
        ContainerDevices(GPU, ("c",)),
    )


# -- profiles --------------------------------------------------------------------------------


def adapted(**lacks: bool) -> Container:
    """Return the main container in a profile."""
    return Profile(**lacks).pod(POD).containers[-1]


def test_whole_profile_returns_the_same_objects() -> None:
    assert ALL.pod(POD) is POD
    assert ALL.allocatable(ALLOCATABLE) is ALLOCATABLE
    flags = {field.name: getattr(ALL, field.name) for field in attrs.fields(Profile)}
    assert flags == {
        "has_get_allocatable": True,
        "get_allocatable_disabled": "",
        "has_get": True,
        "get_enabled": True,
        "list_inactive": True,
        "get_inactive": True,
        "memory": True,
        "share_id": True,
        "dynamic_resources": True,
        "claim_devices": True,
        "repeats_cdi": False,
        "sidecars": True,
        "groups_devices": False,
        "counted": ("list", "get_allocatable", "get"),
        "counts_allocatable_twice": False,
    }


def test_profile_without_memory() -> None:
    profile = Profile(memory=False)
    assert profile.allocatable(ALLOCATABLE) == attrs.evolve(ALLOCATABLE, memory=())
    assert profile.pod(POD) == attrs.evolve(
        POD, memory=(), containers=(SIDECAR, attrs.evolve(MAIN, memory=()))
    )


def test_profile_without_sidecars() -> None:
    assert Profile(sidecars=False).pod(POD) == attrs.evolve(POD, containers=(MAIN,))


def test_profile_without_dynamic_resources() -> None:
    assert adapted(dynamic_resources=False) == attrs.evolve(MAIN, dynamic_resources=())


@pytest.mark.parametrize(
    ("lacks", "changes"),
    [
        ({"share_id": False}, [{"share_id": None}, {}, {}]),
        ({"claim_devices": False}, [{"driver_name": "", "pool_name": "", "device_name": ""}] * 3),
        ({"repeats_cdi": True}, [{}, {"cdi_devices": ("a.com/x=1", "a.com/x=2")}, {}]),
    ],
)
def test_profile_changes_fields_of_claims(
    lacks: dict[str, bool], changes: list[dict[str, Any]]
) -> None:
    resources = tuple(
        attrs.evolve(each, **change)
        for each, change in zip(CLAIM.claim_resources, changes, strict=True)
    )
    claim = attrs.evolve(CLAIM, claim_resources=resources)
    assert adapted(**lacks) == attrs.evolve(MAIN, dynamic_resources=(claim,))


# -- counters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "total", "separate"),
    [
        (ALL, 3, ["get", "get_allocatable", "list"]),
        (Profile(counts_allocatable_twice=True), 4, ["get", "get_allocatable", "list"]),
        (Profile(counted=("list",)), 3, ["list"]),
    ],
    ids=["all", "twice", "list"],
)
def test_counters_of_each_profile(profile: Profile, total: int, separate: list[str]) -> None:
    counters = Counters.of(profile)
    for kind in ("list", "get_allocatable", "get"):
        counters.requested("v1", kind)
        counters.failed("v1", kind)
    counters.requested("v1alpha1", "list")
    counters.failed("v1alpha1", "list")
    prefix = "kubelet_pod_resources_endpoint"
    assert list(counters.snapshot().items()) == [
        *(((f"{prefix}_errors_{kind}", "v1"), 1) for kind in separate),
        *(((f"{prefix}_requests_{kind}", "v1"), 1) for kind in separate),
        ((f"{prefix}_requests_total", "v1"), total),
        ((f"{prefix}_requests_total", "v1alpha1"), 1),
    ]


def test_counters_have_separate_metrics_by_default() -> None:
    counters = Counters()
    for kind in ("list", "get_allocatable", "get"):
        counters.requested("v1", kind)
    assert sorted(counters.snapshot().values()) == [1, 1, 1, 3]


def test_metrics_have_the_kubelets_label() -> None:
    assert (PREFIX, LABEL) == ("kubelet_pod_resources_endpoint", "server_api_version")
