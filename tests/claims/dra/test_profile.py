"""Versions, feature gates, and both sides of each quirk."""

from __future__ import annotations

import pytest

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.dra import AllocationError, InUse, Profile, Quirk, Share, allocate
from devicemanager.claims.dra.profile import VERSIONS
from tests.claims.dra.objects import (
    DRIVER,
    GPU,
    NODE,
    all_of,
    claim,
    consuming,
    counters,
    device,
    exactly,
    names,
    selected,
    slice_,
)

LISTS = [each.value for each in Profile.of("1.37").features] + ["DRAListTypeAttributes"]
WIDE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "5Gi"}}}


def key(name: str) -> DeviceKey:
    return DeviceKey(DRIVER, "p", name)


def lists():
    devices = [
        device(f"d{number}", attributes={"m": values})
        for number, values in enumerate(([1, 2], [1], [2], [2]))
    ]
    match = [{"matchAttribute": f"{DRIVER}/m"}]
    return [claim(exactly(count=3), constraints=match)], [slice_(*devices)], InUse(), LISTS


def rejected_by_a_taint():
    tainted = consuming("d0", "4Gi", taints=[{"key": "k", "effect": "NoSchedule"}])
    slices = [slice_(tainted, consuming("d1", "4Gi"), count=2), counters(memory="4Gi")]
    return [claim()], slices, InUse(), None


def share_without_amounts():
    shared = consuming("d0", "4Gi", allowMultipleAllocations=True)
    slices = [slice_(shared, count=2), counters(memory="4Gi")]
    return [claim()], slices, InUse(shares=(Share(key("d0")),)), None


def pools_of_two_drivers():
    slices = []
    for driver in ("a.example.com", "b.example.com"):
        one = slice_(consuming("d0", "4Gi"), name=driver, driver=driver, count=2)
        shared = counters(name=f"{driver}-c", memory="4Gi")
        shared["spec"]["driver"] = driver
        slices += [one, shared]
    return [claim(exactly(count=2))], slices, InUse(), None


def share_with_counters():
    shared = consuming("d0", "4Gi", **WIDE)
    slices = [slice_(shared, consuming("d1", "4Gi"), count=2), counters(memory="4Gi")]
    wanted = claim(exactly(**selected("!device.allowMultipleAllocations")))
    in_use = InUse(shares=(Share(key("d0"), {"memory": 10**9}),))
    return [wanted], slices, in_use, None


def all_with_counters():
    return [claim(all_of())], [slice_(consuming("d0", "1Gi"), count=2), counters(memory="4Gi")]


def distinct():
    devices = [device(f"d{n}", attributes={"m": value}) for n, value in enumerate((1, 2, 1, 3))]
    rule = [{"distinctAttribute": f"{DRIVER}/m"}]
    return [claim(exactly(count=3), constraints=rule)], [slice_(*devices)], InUse(), None


def all_with_a_full_device():
    slices = [slice_(device("d0", **WIDE), device("d1", **WIDE))]
    full = InUse(shares=(Share(key("d0"), {"memory": 5 * 2**30 * 10**9}),))
    return [claim(all_of(capacity={"requests": {"memory": "1Gi"}}))], slices, full, None


SIDES = {
    Quirk.STALE_LIST_MATCH: (lists, [["d0", "d2", "d3"]], None),
    Quirk.KEPT_RESERVATIONS: (rejected_by_a_taint, [["d1"]], None),
    Quirk.SHARES_CHARGED_AGAIN: (share_without_amounts, [["d0"]], None),
    Quirk.COUNTERS_BY_POOL_NAME: (pools_of_two_drivers, [["d0", "d0"]], None),
    Quirk.SHARES_WITHOUT_COUNTERS: (share_with_counters, None, [["d1"]]),
    Quirk.DISTINCT_PER_REQUEST: (distinct, [["d0", "d1", "d3"]], [["d0", "d1", "d2"]]),
    Quirk.ALL_SKIPS_FULL: (all_with_a_full_device, None, [["d1"]]),
}


@pytest.mark.parametrize("quirk", SIDES, ids=lambda each: each.value)
def test_both_sides_of_a_quirk(quirk):
    make, right, wrong = SIDES[quirk]
    claims, slices, in_use, features = make()

    def solve(*quirks):
        profile = Profile.of(features=features, quirks=quirks)
        return names(allocate(claims, slices, [GPU], NODE, in_use, profile=profile))

    assert solve() == right
    assert solve(quirk.value) == wrong


def test_all_with_counters_crashes_with_the_quirk():
    claims, slices = all_with_counters()
    assert names(allocate(claims, slices, [GPU], NODE)) == [["d0"]]
    profile = Profile.of(quirks=["all-with-counters"])
    with pytest.raises(AllocationError, match="nil pointer dereference"):
        allocate(claims, slices, [GPU], NODE, profile=profile)


def test_kept_reservations_keep_only_counters():
    """Groups of a rejected device would exclude d2 and d3."""
    tainted = [{"key": "k", "effect": "NoSchedule"}]
    slices = [
        slice_(
            consuming("d0", "1Gi", groups=["a"]),
            consuming("d1", "1Gi", groups=["a", "b"], taints=tainted),
            consuming("d2", "1Gi", groups=["b"]),
            consuming("d3", "1Gi", groups=["b"]),
            count=2,
        ),
        counters(memory="8Gi"),
    ]
    features = [*LISTS, "DRADeviceCompatibilityGroups"]
    for quirks in ((), ("kept-reservations",)):
        profile = Profile.of(features=features, quirks=quirks)
        found = allocate([claim(exactly(count=2))], slices, [GPU], NODE, profile=profile)
        assert names(found) == [["d2", "d3"]]


def test_a_config_is_repeated_with_the_quirk():
    config = {"opaque": {"driver": DRIVER, "parameters": {}}, "requests": ["a", "b"]}
    arguments = [claim(exactly("a"), exactly("b"), config=[config])], [slice_("d0", "d1")]
    (right,) = allocate(*arguments, [GPU], NODE)
    profile = Profile.of(quirks=["config-per-request"])
    (wrong,) = allocate(*arguments, [GPU], NODE, profile=profile)
    opaque = config["opaque"]
    assert right["devices"]["config"] == [{"source": "FromClaim", "opaque": opaque}]
    repeated = {"source": "FromClaim", "requests": ["a", "b"], "opaque": opaque}
    assert wrong["devices"]["config"] == [repeated, repeated]


def test_every_quirk_has_both_sides():
    elsewhere = {Quirk.ALL_WITH_COUNTERS, Quirk.CONFIG_PER_REQUEST}
    assert SIDES.keys() | elsewhere == set(Quirk)


def test_the_newest_version_has_no_quirks():
    assert Profile.of() == Profile.of("1.37")
    assert not Profile.of().quirks
    assert Profile.of("1.36").quirks
    assert VERSIONS[-1] == "1.37"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"version": "1.20"}, "unknown version '1.20': use one of"),
        ({"features": ["DRA"]}, "unknown feature gate 'DRA': use one of DRAAdminAccess"),
        ({"quirks": ["x"]}, "unknown quirk 'x': use one of all-skips-full"),
    ],
)
def test_an_unknown_name_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        Profile.of(**arguments)


def test_an_error_of_a_selector_names_the_device_since_1_37():
    wanted = [claim(exactly(**selected(f'device.attributes["{DRIVER}"].x == 1')))]
    texts = []
    for version in ("1.36", "1.37"):
        with pytest.raises(AllocationError) as raised:
            allocate(wanted, [slice_("d0")], [GPU], NODE, profile=Profile.of(version))
        texts.append(str(raised.value))
    assert texts[0] == "claim default/c: selector #0: CEL runtime error: no such key: x"
    assert texts[1].startswith(
        f"claim default/c: selector #0 on device {DRIVER}/p/d0: CEL runtime error: no such key: x."
    )


def test_1_34_has_no_alpha_gates():
    with pytest.raises(ValueError, match=r"not supported in 1\.34: DRAConsumableCapacity: use DRA"):
        Profile.of("1.34", features=["DRAConsumableCapacity"])


OLD = Profile.of("1.34", features=["DRADeviceTaints", "DRAPartitionableDevices"])


def solve_in_1_34(wanted, *slices):
    return allocate([wanted], slices, [GPU], NODE, profile=OLD)


def test_1_34_uses_incomplete_pools_and_refuses_invalid_ones():
    missing = slice_("d0", count=2)
    assert names(solve_in_1_34(claim(), missing)) == [["d0"]]
    assert allocate([claim()], [missing], [GPU], NODE) is None
    with pytest.raises(AllocationError, match="pool p is invalid: duplicate device name x"):
        solve_in_1_34(claim(), slice_("x", "x"))


def test_1_34_heeds_taints_with_any_effect_and_writes_no_tolerations():
    tainted = device("d0", taints=[{"key": "k", "effect": "None"}])
    assert solve_in_1_34(claim(), slice_(tainted)) is None
    tolerations = [{"key": "k", "operator": "Exists"}]
    (result,) = solve_in_1_34(claim(exactly(tolerations=tolerations)), slice_(tainted))
    assert "tolerations" not in result["devices"]["results"][0]


def test_1_34_has_counters_beside_the_devices():
    both = slice_(consuming("d0", "3Gi"), consuming("d1", "3Gi"))
    both["spec"]["sharedCounters"] = counters(memory="4Gi")["spec"]["sharedCounters"]
    assert names(solve_in_1_34(claim(), both)) == [["d0"]]
    assert solve_in_1_34(claim(exactly(count=2)), both) is None
