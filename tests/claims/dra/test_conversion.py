"""Structured claims become objects of resource.k8s.io that allocate the same devices."""

from __future__ import annotations

import pytest

from devicemanager.claims.dra import Node, allocate, with_defaults
from devicemanager.claims.dra.conversion import convert
from devicemanager.claims.files import in_order, read_source
from devicemanager.claims.simulated import SimulatedHardware, simulated_classes
from tests.claims.dra.objects import names
from tests.paths import ROOT

EXAMPLES = ROOT / "examples" / "claims"


def converted(*sources, hardware="gpu"):
    objects = [each for source in sources for each in read_source(source)]
    if hardware:
        objects += [*SimulatedHardware(gpu=2, nic=1).pools("worker"), *simulated_classes()]
    return convert(in_order(objects))


def of_kind(found, kind):
    return [each for each in found.objects if each["kind"] == kind]


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("partition", ["2g-20gb-0"]),
        ("stream", ["uplink"]),
        ("either", ["3g-40gb-0", "3g-40gb-1"]),
    ],
)
def test_examples_get_their_devices(name, devices):
    found = converted(EXAMPLES / f"{name}.yaml")
    (claim,) = of_kind(found, "ResourceClaim")
    slices, classes = of_kind(found, "ResourceSlice"), of_kind(found, "DeviceClass")
    results = allocate([with_defaults(claim)], slices, classes, Node("worker"))
    assert names(results) == [devices]


def claim_of(spec):
    document = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": spec,
    }
    found = converted(document)
    (claim,) = of_kind(found, "ResourceClaim")
    return claim["spec"]["devices"], [note for note in found.notes if "DeviceClaim" in note]


def test_amounts_versions_and_attributes_become_selectors():
    constraints = "device.memory >= '40Gi' && device.profile == '2g.20gb'"
    devices, _ = claim_of({"claims": [{"deviceClass": "gpu", "constraints": constraints}]})
    attributes, capacity = (
        'device.attributes["gpu.example.com"]',
        'device.capacity["gpu.example.com"]',
    )
    assert devices["requests"] == [
        {
            "name": "request-0",
            "exactly": {
                "deviceClassName": "gpu",
                "allocationMode": "ExactCount",
                "count": 1,
                "selectors": [
                    {
                        "cel": {
                            "expression": f"has({capacity}.memory) && has({attributes}.profile) &&"
                            f" ({capacity}.memory.compareTo(quantity('40Gi')) >= 0 &&"
                            f" {attributes}.profile == '2g.20gb')"
                        }
                    }
                ],
            },
        }
    ]


def test_a_budget_becomes_a_counter_set_that_devices_consume():
    found = converted()
    counters = [
        each for each in of_kind(found, "ResourceSlice") if "sharedCounters" in each["spec"]
    ]
    assert [each["metadata"]["name"] for each in counters] == [
        "worker-gpu-0-counters",
        "worker-gpu-1-counters",
    ]
    assert counters[0]["spec"]["pool"]["resourceSliceCount"] == 2
    (shared,) = counters[0]["spec"]["sharedCounters"]
    assert shared["counters"]["memory-slices"] == {"value": "8"}


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            {"claims": [{"deviceClass": "gpu", "limits": {"count": "3"}}]},
            "limits have no equivalent: the number of devices is fixed",
        ),
        (
            {
                "claims": [
                    {"deviceClass": "nic-bandwidth", "requests": {"count": "2", "bandwidth": "1G"}}
                ]
            },
            "amounts were for all devices together: now each device must have these amounts",
        ),
        (
            {"claims": [{"deviceClass": "gpu-monitor"}]},
            "label the namespace resource.kubernetes.io/admin-access=true",
        ),
        (
            {
                "claims": [{"deviceClass": "gpu"}, {"deviceClass": "nic-function"}],
                "matchAttributes": ["numa"],
            },
            "matchAttributes numa: omitted: the devices have several drivers",
        ),
        (
            {"claims": [{"deviceClass": "gpu"}], "matchAttributes": ["memory"]},
            "matchAttributes memory: omitted: quantities cannot be matched",
        ),
        (
            {"claims": [{"deviceClass": "gpu", "constraints": "device.shell == '1'"}]},
            "no pool has the attribute shell: check its type",
        ),
    ],
)
def test_what_has_no_equivalent_is_named(spec, note):
    _, notes = claim_of(spec)
    assert any(note in each for each in notes), notes


def test_classes_of_a_type_become_alternatives():
    classes = [
        {
            "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"driver": "d.example.com", "deviceType": "t"},
        }
        for name in ("b", "a")
    ]
    wanted = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": {"claims": [{"deviceType": "t"}]},
    }
    found = converted(*classes, wanted, hardware=None)
    (claim,) = of_kind(found, "ResourceClaim")
    (request,) = claim["spec"]["devices"]["requests"]
    assert [each["deviceClassName"] for each in request["firstAvailable"]] == ["a", "b"]
    assert any("the classes a, b become alternatives" in note for note in found.notes)


def test_large_pools_are_split():
    pool = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": "p"},
        "spec": {"driver": "d.example.com", "devices": [{"name": f"d{n}"} for n in range(200)]},
    }
    found = converted(pool, hardware=None)
    slices = of_kind(found, "ResourceSlice")
    assert [len(each["spec"]["devices"]) for each in slices] == [128, 72]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in slices} == {2}
    assert all(each["spec"]["allNodes"] for each in slices)
