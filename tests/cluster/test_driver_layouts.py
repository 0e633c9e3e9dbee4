"""The devices of simulated drivers: slices from numbers, annotations and recorded slices."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.client.errors import ClusterError
from devicemanager.cluster.driver_layouts import (
    DriverLayout,
    PoolLayout,
    kwok_drivers,
    recorded,
    simulated_driver,
)

DRIVER = "gpu.example.com"


def specs(layout: DriverLayout, version: str = "v1", **changes: Any) -> list[Any]:
    return list(layout.specs("n1", 3, version, **changes))


def names(found: list[Any]) -> list[list[str]]:
    return [[device["name"] for device in each["devices"]] for each in found]


def test_slice_has_the_node_the_pool_and_the_attributes_of_devices() -> None:
    layout = simulated_driver(
        DRIVER,
        [None, 0, 17],
        attributes={"model": {"string": "A100"}},
        capacity={"memory": {"value": "1Gi"}},
    )
    assert layout.devices == {"gpu-0", "gpu-1", "gpu-2"}
    (found,) = specs(layout)
    devices = found.pop("devices")
    assert found == {
        "driver": DRIVER,
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 3, "resourceSliceCount": 1},
    }
    root = "resource.kubernetes.io/pcieRoot"
    assert devices == [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "index": {"int": index},
                root: {"string": pcie},
                **({} if place is None else {"numaNode": {"int": place}}),
                "model": {"string": "A100"},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }
        for index, place, pcie in (
            (0, None, "pci0000:00"),
            (1, 0, "pci0000:00"),
            (2, 17, "pci0000:11"),
        )
    ]
    assert "capacity" not in specs(simulated_driver(DRIVER, [None]))[0]["devices"][0]


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (64, [64]), (65, [64, 1]), (128, [64, 64])]
)
def test_slice_has_at_most_64_devices(count: int, sizes: list[int]) -> None:
    found = specs(simulated_driver(DRIVER, [None] * count))
    assert [len(each) for each in names(found)] == sizes
    assert [name for each in names(found) for name in each] == [f"gpu-{n}" for n in range(count)]
    assert {each["pool"]["resourceSliceCount"] for each in found} == {len(sizes)}


TAINT = {"key": f"{DRIVER}/unhealthy", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_unhealthy_devices_get_a_taint_and_lost_ones_are_omitted(version: str) -> None:
    other = {"key": "other", "effect": "NoExecute"}
    part = {"devices": [{"name": name, "taints": [other]} for name in "ab"] + [{"name": "c"}]}
    layout = DriverLayout.of(DRIVER, [PoolLayout("{node}", (part,))])
    (found,) = specs(layout, version, unhealthy={"b", "c"}, lost={"a"})
    taints = {
        each["name"]: (each["basic"] if version == "v1beta1" else each)["taints"]
        for each in found["devices"]
    }
    assert taints == {"b": [other, TAINT], "c": [TAINT]}
    (found,) = specs(layout, version)
    assert names([found]) == [["a", "b", "c"]], "the layout is unchanged"
    assert "taint" not in str(found["devices"][2])


def test_v1beta1_has_the_fields_of_a_device_below_basic() -> None:
    counters = {"sharedCounters": [{"name": "c", "counters": {}}]}
    devices = {"devices": [{"name": "a", "attributes": {"x": {"int": 1}}, "capacity": {}}]}
    layout = DriverLayout.of(DRIVER, [PoolLayout("p-{node}", (counters, devices))])
    first, second = specs(layout, "v1beta1")
    assert first["sharedCounters"] == counters["sharedCounters"] and "devices" not in first
    basic = {"attributes": {"x": {"int": 1}}, "capacity": {}}
    assert second["devices"] == [{"name": "a", "basic": basic}]
    assert first["pool"] == {"name": "p-n1", "generation": 3, "resourceSliceCount": 2}
    for version in ("v1", "v1beta2"):
        assert specs(layout, version)[1]["devices"] == devices["devices"]
    assert list(layout.by_version) == ["v1beta1"]
    assert specs(layout, "v1beta1", lost={"a"})[1]["devices"] == []
    assert layout.devices == {"a"}


# -- KWOK ------------------------------------------------------------------------------------


def test_annotations_of_kwok_define_drivers() -> None:
    assert kwok_drivers({"other": "1"}) == ()
    gpu, nvidia = kwok_drivers(
        {
            "kwok.x-k8s.io/dra-nvidia-gpu": "2",
            "kwok.x-k8s.io/dra-gpu": "128",
            "kwok.x-k8s.io/dra-gpu-memory": "1024Mi",
        }
    )
    assert (gpu.driver, nvidia.driver) == ("gpu.kwok.x-k8s.io", "gpu.nvidia.com")
    assert (len(gpu.devices), len(nvidia.devices)) == (128, 2)
    one, other = specs(gpu)[0]["devices"][0], specs(nvidia)[0]["devices"][0]
    assert one["capacity"] == {"memory": {"value": "1Gi"}} and "type" not in one["attributes"]
    assert other["capacity"] == {"memory": {"value": "80Gi"}}
    assert other["attributes"]["type"] == {"string": "gpu"}
    (default,) = kwok_drivers({"kwok.x-k8s.io/dra-gpu": "1"})
    assert specs(default)[0]["devices"][0]["capacity"] == {"memory": {"value": "16Gi"}}


@pytest.mark.parametrize("name", ["gpu", "nvidia-gpu"])
@pytest.mark.parametrize("count", ["0", "129", "0001", "-1", "1.0", "", "x" * 99, "²", "\uff11"])
def test_invalid_number_of_devices_is_an_error(name: str, count: str) -> None:
    with pytest.raises(ClusterError) as raised:
        kwok_drivers({f"kwok.x-k8s.io/dra-{name}": count})
    assert str(raised.value) == (
        f"annotation kwok.x-k8s.io/dra-{name}: invalid number {count[:60]!r}: use 1 to 128"
    )


def test_invalid_memory_is_an_error() -> None:
    name = "kwok.x-k8s.io/dra-gpu"
    with pytest.raises(ClusterError) as raised:
        kwok_drivers({name: "1", f"{name}-memory": "much" * 20})
    start = f"annotation {name}-memory: {'much' * 15!r}: quantities must match"
    assert str(raised.value).startswith(start)


# -- recorded slices -------------------------------------------------------------------------


def slice_(name: str, driver: str = DRIVER, pool: str = "n1", **spec: Any) -> dict[str, Any]:
    pool_ = {"name": pool, "generation": 7, "resourceSliceCount": 9}
    own = {"driver": driver, "pool": pool_, "nodeName": "n1", "devices": [{"name": name}]}
    return {"metadata": {"name": name}, "spec": {**own, **spec}}


def test_recorded_slices_become_layouts_of_any_node() -> None:
    layouts = recorded(
        [
            slice_("d", driver="z.example.com", pool="shared"),
            slice_("c", pool="b-n1-n1"),
            slice_("b"),
            slice_("a", sharedCounters=[{"name": "x"}]),
        ]
    )
    assert [each.driver for each in layouts] == [DRIVER, "z.example.com"]
    first, second = layouts
    assert [pool.name for pool in first.pools] == ["b-{node}-{node}", "{node}"]
    assert [pool.name for pool in second.pools] == ["{node}/shared"]
    assert first.pools[1].slices == (
        {"devices": [{"name": "a"}], "sharedCounters": [{"name": "x"}]},
        {"devices": [{"name": "b"}]},
    )
    assert (first.devices, second.devices) == ({"a", "b", "c"}, {"d"})
    pools = [each["pool"] for each in first.specs("m", 1, "v1")]
    assert [(each["name"], each["resourceSliceCount"]) for each in pools] == [
        ("b-m-m", 1),
        ("m", 2),
        ("m", 2),
    ]


@pytest.mark.parametrize(
    ("slices", "text"),
    [
        ([], "no slices: expected the slices of one node"),
        (
            [slice_("a", nodeName="y"), slice_("b", nodeName="x")],
            "slices of 2 nodes (x, y): expected the slices of one node",
        ),
        *(
            (
                [slice_("a", **spec)],
                "slice a has no spec.nodeName: a node can only publish slices of its own devices",
            )
            for spec in (
                {"nodeName": ""},
                {"nodeName": None},
                {"allNodes": True},
                {"nodeSelector": {"nodeSelectorTerms": []}},
                {"perDeviceNodeSelection": True},
            )
        ),
        (
            [{"metadata": {}, "spec": {"driver": "d", "pool": {"name": "p"}}}],
            "slice without name has no spec.nodeName: a node can only publish slices of its own "
            "devices",
        ),
    ],
)
def test_slices_of_other_nodes_are_an_error(slices: Any, text: str) -> None:
    with pytest.raises(ClusterError) as raised:
        recorded(slices)
    assert str(raised.value) == text
