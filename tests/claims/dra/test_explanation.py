"""Why claims do not fit: the request, the rule, and the devices that it excludes."""

from __future__ import annotations

import pytest

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.dra import AllocationError, Allocator, InUse, Profile, Share
from tests.claims.dra.objects import (
    DRIVER,
    GPU,
    NODE,
    claim,
    consuming,
    counters,
    device,
    exactly,
    selected,
    slice_,
)


def explain(wanted, *slices, in_use=None):
    return Allocator(slices, [GPU]).explain([wanted], NODE, in_use or InUse())


def test_each_device_has_the_first_rule_that_excludes_it():
    tainted = device("bad", taints=[{"key": "k", "effect": "NoSchedule"}])
    tainted["attributes"] = {"m": {"int": 1}}
    small = device("small", attributes={"m": 1})
    elsewhere = device("far", attributes={"m": 1}, nodeName="other")
    here = device("here", attributes={"m": 1}, nodeName=NODE.name)
    slices = (
        slice_(tainted, small, "unmarked", "used"),
        slice_(elsewhere, here, perDeviceNodeSelection=True, pool="q", name="q"),
        slice_("x", pool="late", name="late", count=2),
    )
    condition = selected(f'has(device.attributes["{DRIVER}"].m)')
    used = InUse(frozenset({DeviceKey(DRIVER, "p", "used")}))
    assert explain(claim(exactly(count=3, **condition)), *slices, in_use=used) == (
        f"pool {DRIVER}/late is not used: slices are missing",
        "claim default/c, request r: devices wanted: 3, usable: 2",
        f"  a taint is not tolerated, or a feature gate is off: {DRIVER}/p/bad",
        "  claim default/c, selector #0 is false:"
        f' has(device.attributes["{DRIVER}"].m): {DRIVER}/p/unmarked',
        f"  allocated to another claim: {DRIVER}/p/used",
        f"  not for this node, or its request policy excludes the amount: {DRIVER}/q/far",
    )


def test_amounts_and_counters_are_named():
    wide = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "5Gi"}})
    big = consuming("d1", "8Gi", capacity={"memory": {"value": "5Gi"}})
    in_use = InUse(shares=(Share(DeviceKey(DRIVER, "p", "d0"), {"memory": 4 * 2**30 * 10**9}),))
    wanted = claim(exactly(capacity={"requests": {"memory": "2Gi"}}))
    found = explain(wanted, slice_(wide, big, count=2), counters(memory="4Gi"), in_use=in_use)
    assert found[1:] == (
        f"  too little memory left: {DRIVER}/p/d0",
        f"  too little is left of the counters of its pool: {DRIVER}/p/d1",
    )


def test_incompatible_groups_are_named():
    devices = [consuming("d0", "1Gi", groups=["a"]), consuming("d1", "1Gi", groups=["b"])]
    slices = [slice_(*devices, count=2), counters(memory="4Gi")]
    gates = ["DRADeviceCompatibilityGroups", "DRAPartitionableDevices"]
    in_use = InUse(frozenset({DeviceKey(DRIVER, "p", "d0")}))
    allocator = Allocator(slices, [GPU], profile=Profile.of(features=gates))
    assert allocator.explain([claim()], NODE, in_use)[2] == (
        f"  incompatible with devices that use its counters (compatibilityGroups): {DRIVER}/p/d1"
    )


def test_a_request_that_fits_alone_says_so():
    wanted = claim(exactly("a"), exactly("b"))
    assert explain(wanted, slice_("d0")) == (
        "claim default/c, request a: devices wanted: 1, usable: 1",
        "  enough devices, but no combination meets all constraints, counters and other requests",
        "claim default/c, request b: devices wanted: 1, usable: 1",
        "  enough devices, but no combination meets all constraints, counters and other requests",
    )


@pytest.mark.parametrize(
    ("devices", "usable", "reason"),
    [
        ((), 0, "no complete pool has devices for this node"),
        (("d0",), 1, "the node has no other devices"),
    ],
)
def test_a_node_with_too_few_devices(devices, usable, reason):
    slices = [slice_(*devices)] if devices else []
    assert explain(claim(exactly(count=2)), *slices) == (
        f"claim default/c, request r: devices wanted: 2, usable: {usable}",
        f"  {reason}",
    )


def test_many_devices_are_counted():
    found = explain(claim(exactly(**selected("false"))), slice_(*(f"d{n}" for n in range(9))))
    assert found[1] == (
        "  claim default/c, selector #0 is false: false:"
        f" {DRIVER}/p/d0, {DRIVER}/p/d1, {DRIVER}/p/d2 and 6 more"
    )


def test_an_error_is_raised():
    with pytest.raises(AllocationError, match="could not retrieve device class nope"):
        explain(claim(exactly(deviceClassName="nope")), slice_("d0"))
