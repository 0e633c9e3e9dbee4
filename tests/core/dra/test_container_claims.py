"""The CDI devices of a container, and its claims in PodResources and the pod's status."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.containers import (
    ClaimDevice,
    ClaimDeviceHealth,
    ClaimDevices,
    claims_status,
    container_cdi,
    dynamic_resources,
    resource_statuses,
)
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.health import HealthCache, ReportedDevice
from devicemanager.core.dra.model import (
    ClaimInfo,
    ContainerClaim,
    ContainerClaims,
    DriverState,
    ExtendedClaim,
    PodClaim,
    PodClaims,
    PreparedDevice,
    RequestMapping,
)
from devicemanager.core.status import Health, ResourceHealth, ResourceStatus
from tests.dra_world import GPU, rules


def held(name: str) -> ClaimInfo:
    device = PreparedDevice("pool", name, None, None, (f"example.com/dev={name}",))
    return ClaimInfo("default", name, f"{name}-uid", drivers={GPU: DriverState((device,))})


def pod(claims: tuple[PodClaim, ...], *used: str, extended: str | None = None) -> PodClaims:
    container = ContainerClaims("main", tuple(map(ContainerClaim, used)))
    return PodClaims(
        "uid",
        "p",
        "default",
        claims,
        extended=None if extended is None else ExtendedClaim(extended, ()),
        containers=(container,),
    )


CACHE = ClaimCache([held("c1"), held("c2")])


@pytest.mark.parametrize("version", ["1.34", "1.36"])
def test_claim_that_another_container_uses_may_be_missing_since_136(version):
    both = pod((PodClaim("x", "c1"), PodClaim("y", template="t")), "x")
    if version == "1.36":
        assert container_cdi(both, "main", CACHE, rules(version)) == ("example.com/dev=c1",)
    else:
        with pytest.raises(DraError, match="ResourceClaim not created yet"):
            container_cdi(both, "main", CACHE, rules(version))


@pytest.mark.parametrize(("version", "order"), [("1.34", "121"), ("1.36", "112")])
def test_requests_of_one_claim_are_together_since_136(version, order):
    claims = (PodClaim("x", "c1"), PodClaim("y", "c2"), PodClaim("z", "c1"))
    found = container_cdi(pod(claims, "x", "y", "z"), "main", CACHE, rules(version))
    assert [name[-1] for name in found] == list(order)


@pytest.mark.parametrize("version", ["1.34", "1.36"])
def test_claim_of_extended_resources_must_be_there_before_136(version):
    known = rules(version, DRAExtendedResource=True)
    without = pod((PodClaim("x", "c1"),), "x", extended="c9")
    if version == "1.36":
        assert container_cdi(without, "main", CACHE, known) == ("example.com/dev=c1",)
    else:
        with pytest.raises(DraError, match="unable to get claim info for claim c9 in namespace"):
            container_cdi(without, "main", CACHE, known)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.36", "internal error: unable to get claim info for ResourceClaim c9 in namespace ns"),
        ("1.34", "internal error: unable to get claim info for ResourceClaim c9"),
    ],
)
def test_claim_that_is_not_in_the_cache_is_an_error(version, text):
    used = attrs.evolve(pod((PodClaim("x", "c9"),), "x"), namespace="ns")
    with pytest.raises(DraError) as raised:
        container_cdi(used, "main", CACHE, rules(version))
    assert str(raised.value) == text


# -- PodResources and the pod's status -------------------------------------------------------

NET = "net.example.com"


def prepared(name: str, *cdi: str, share: str | None = None, requests: tuple[str, ...] = ()):
    return PreparedDevice("pool", name, share, requests or None, cdi or None)


def filled(name: str, **drivers: tuple[PreparedDevice, ...] | None) -> ClaimInfo:
    names = {"gpu": GPU, "net": NET}
    states = {names[driver]: DriverState(devices) for driver, devices in drivers.items()}
    return ClaimInfo("default", name, f"{name}-uid", drivers=states)


def names(found: tuple[ClaimDevices, ...]) -> list[str]:
    return [each.name for each in found]


def test_podresources_lists_all_devices_of_a_claim_by_driver():
    claim = filled(
        "c1",
        net=(prepared("n", share="s"),),
        gpu=(prepared("b", "g/d=1", "g/d=2", requests=("r",)), prepared("a")),
    )
    used = attrs.evolve(
        pod((PodClaim("x", "c1"),)),
        containers=(ContainerClaims("main", (ContainerClaim("x", "other"),)),),
    )
    assert dynamic_resources(used, "main", ClaimCache([claim]), rules()) == (
        ClaimDevices(
            "default",
            "c1",
            (
                ClaimDevice(GPU, "pool", "b", ("g/d=1", "g/d=2")),
                ClaimDevice(GPU, "pool", "a", ()),
                ClaimDevice(NET, "pool", "n", (), "s"),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("quirks", "cdi"),
    [
        ((), [("g=1",), ("g=2", "g=3"), (), ("n=1",)]),
        (("Q26",), [("g=1",), ("g=1", "g=2", "g=3"), ("g=1", "g=2", "g=3"), ("n=1",)]),
    ],
)
def test_cdi_devices_of_a_device_in_podresources(quirks, cdi):
    claim = filled(
        "c1",
        gpu=(prepared("a", "g=1"), prepared("b", "g=2", "g=3"), prepared("c")),
        net=(prepared("n", "n=1"),),
    )
    used = pod((PodClaim("x", "c1"),), "x")
    (found,) = dynamic_resources(used, "main", ClaimCache([claim]), rules("1.37", *quirks))
    assert [each.cdi for each in found.devices] == cdi


@pytest.mark.parametrize(("version", "listed"), [("1.34", ["c1", "c1"]), ("1.36", ["c1"])])
def test_claim_with_two_requests_is_listed_once_since_136(version, listed):
    used = attrs.evolve(
        pod((PodClaim("x", "c1"), PodClaim("y", "c2"))),
        containers=(ContainerClaims("main", (ContainerClaim("x", "r"), ContainerClaim("x", "s"))),),
    )
    assert names(dynamic_resources(used, "main", CACHE, rules(version))) == listed


def test_unused_and_unneeded_claims_are_not_listed():
    claims = (PodClaim("x", "c1"), PodClaim("y", template="t"), PodClaim("z", "c2"))
    used = attrs.evolve(pod(claims, "y", "z"), statuses={"y": None})
    for version in ("1.34", "1.36"):
        assert names(dynamic_resources(used, "main", CACHE, rules(version))) == ["c2"]
        assert dynamic_resources(used, "unknown", CACHE, rules(version)) == ()


@pytest.mark.parametrize("version", ["1.34", "1.36"])
def test_podresources_needs_the_unused_claims_before_136(version):
    used = pod((PodClaim("x", "c1"), PodClaim("y", template="t")), "x")
    if version == "1.36":
        assert names(dynamic_resources(used, "main", CACHE, rules(version))) == ["c1"]
    else:
        with pytest.raises(DraError, match="ResourceClaim not created yet"):
            dynamic_resources(used, "main", CACHE, rules(version))


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (
            "1.32",
            "locked cache operation: unable to get claim info for claim c9 in namespace default",
        ),
        ("1.34", "unable to get information for ResourceClaim c9"),
        ("1.36", "unable to get information for ResourceClaim c9"),
    ],
)
def test_podresources_needs_the_claims_in_the_cache(version, text):
    with pytest.raises(DraError) as raised:
        dynamic_resources(pod((PodClaim("x", "c9"),), "x"), "main", CACHE, rules(version))
    assert str(raised.value) == text


CLASS = "deviceclass.resource.kubernetes.io/gpu"


def extended(claim: str, *mappings: tuple[str, str, str], **requests: int) -> PodClaims:
    wanted = {"a.com/gpu": 1, CLASS: 1} | {
        name.replace("_", "/"): n for name, n in requests.items()
    }
    return PodClaims(
        "uid",
        "p",
        "default",
        extended=ExtendedClaim(claim, tuple(RequestMapping(*each) for each in mappings)),
        containers=(ContainerClaims("main", requests=wanted), ContainerClaims("side")),
    )


def test_claim_of_extended_resources_is_listed_for_its_containers():
    used = extended("c1", ("side", "a.com/gpu", "r"), ("other", "a.com/gpu", "r"))
    on, off = rules("1.36"), rules("1.36", DRAExtendedResource=False)
    assert names(dynamic_resources(used, "side", CACHE, on)) == ["c1"]
    assert dynamic_resources(used, "main", CACHE, on) == ()
    assert dynamic_resources(used, "side", CACHE, off) == ()
    with pytest.raises(DraError) as raised:
        dynamic_resources(extended("c9", ("side", "x", "r")), "side", CACHE, on)
    assert str(raised.value) == "unable to get claim info for claim c9 in namespace default"


@pytest.mark.parametrize(
    ("version", "mappings", "found"),
    [
        ("1.36", [("main", "a.com/gpu", "r1")], "1"),
        ("1.34", [("main", "a.com/gpu", "r1")], "1"),
        # Another container, a resource without a request, and a resource that is not extended.
        ("1.36", [("side", "a.com/gpu", "r1")], ""),
        ("1.36", [("main", "b.com/gpu", "r1")], ""),
        ("1.36", [("main", "zero/gpu", "r1")], ""),
        ("1.36", [("main", "cpu", "r1")], ""),
        ("1.36", [("side", "a.com/gpu", "r2"), ("main", "a.com/gpu", "r1")], "1"),
        ("1.36", [("main", "a.com/gpu", "r1"), ("main", "a.com/gpu", "r2")], "12"),
        ("1.34", [("main", "a.com/gpu", "r1"), ("main", "a.com/gpu", "r2")], "1"),
        ("1.36", [("main", CLASS, "r2")], "2"),
        ("1.34", [("main", CLASS, "r2")], ""),
        ("1.36", [("main", "a.com/gpu", "r2"), ("main", CLASS, "r1")], "21"),
    ],
)
def test_requests_of_extended_resources(version, mappings, found):
    claim = filled(
        "c1", gpu=(prepared("a", "1", requests=("r1",)), prepared("b", "2", requests=("r2",)))
    )
    known = rules(version, DRAExtendedResource=True)
    used = extended("c1", *mappings, cpu=1, zero_gpu=0)
    assert "".join(container_cdi(used, "main", ClaimCache([claim]), known)) == found


def test_extended_resources_are_ignored_while_the_feature_is_off():
    used = extended("c9", ("main", "a.com/gpu", "r"))
    assert container_cdi(used, "main", CACHE, rules("1.36", DRAExtendedResource=False)) == ()
    with pytest.raises(DraError, match="claim info for ResourceClaim c9 in namespace default"):
        container_cdi(used, "main", CACHE, rules("1.36"))


# -- health ----------------------------------------------------------------------------------


def healthy(*devices: tuple[str, str, Health, str], version: str = "1.37") -> HealthCache:
    cache = HealthCache(rules(version))
    for driver in dict.fromkeys(each[0] for each in devices):
        entries = [ReportedDevice("pool", *each[1:]) for each in devices if each[0] == driver]
        cache.report(driver, entries, 0.0)
    return cache


def test_status_has_the_health_of_each_device():
    claims = [
        filled(
            "c1",
            net=(prepared("n", requests=("r",)),),
            gpu=(
                prepared("a", "g=1", "g=2", requests=("r",)),
                prepared("b", "g=1", requests=("r",)),
                prepared("c", "g=3", requests=("s",)),
            ),
        ),
        filled("c2", gpu=(prepared("d"),)),
        filled("c3", gpu=None),
    ]
    used = PodClaims(
        "uid",
        "p",
        "default",
        (
            PodClaim("x", "c1"),
            PodClaim("y", template="t"),
            PodClaim("z", "c3"),
            PodClaim("gone", "c9"),
            PodClaim("none", template="t"),
        ),
        statuses={"y": "c2", "none": None},
        containers=(
            ContainerClaims("init", (ContainerClaim("x"),), init=True),
            ContainerClaims(
                "main",
                (
                    ContainerClaim("gone"),
                    ContainerClaim("none"),
                    ContainerClaim("unknown"),
                    ContainerClaim("z"),
                    ContainerClaim("x", "r"),
                    ContainerClaim("x", "s"),
                    ContainerClaim("y"),
                ),
            ),
            ContainerClaims("idle"),
            ContainerClaims("side", (ContainerClaim("x"),)),
        ),
    )
    health = healthy(
        (GPU, "a", Health.UNHEALTHY, "hot"),
        (GPU, "b", Health.HEALTHY, ""),
        (GPU, "c", Health.HEALTHY, "fine"),
        (NET, "n", Health.HEALTHY, ""),
    )
    found = claims_status(used, ClaimCache(claims), health, rules(), 0.0)
    hot = ClaimDeviceHealth("g=1", Health.UNHEALTHY, "hot")
    fine = ClaimDeviceHealth("g=3", Health.HEALTHY, "fine")
    net = ClaimDeviceHealth(f"{NET}/pool/n", Health.HEALTHY)
    unknown = ClaimDeviceHealth(f"{GPU}/pool/d", Health.UNKNOWN)
    assert found == {
        "main": {"claim:x/r": (hot, net), "claim:x/s": (fine,), "claim:y": (unknown,)},
        "side": {"claim:x": (hot, fine, net)},
    }
    assert resource_statuses(found["main"]) == (
        ResourceStatus("claim:x/r", (_row(hot), _row(net))),
        ResourceStatus("claim:x/s", (_row(fine),)),
        ResourceStatus("claim:y", (_row(unknown),)),
    )
    backwards = dict(reversed(found["main"].items()))
    assert resource_statuses(backwards) == resource_statuses(found["main"])
    # The health is read at the given time.
    late = claims_status(used, ClaimCache(claims), health, rules(), 31.0)
    assert {each.health for each in late["side"]["claim:x"]} == {Health.UNKNOWN}


def _row(entry: ClaimDeviceHealth) -> ResourceHealth:
    return ResourceHealth(entry.resource_id, entry.health, entry.message)


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (rules("1.37"), True),
        (rules("1.37", ResourceHealthStatus=False), False),
        (rules("1.34", ResourceHealthStatus=True), True),
        (rules("1.33", ResourceHealthStatus=True), False),
    ],
)
def test_status_of_claims_needs_the_feature(known, shown):
    used = pod((PodClaim("x", "c1"),), "x")
    found = claims_status(used, CACHE, HealthCache(known), known, 0.0)
    assert list(found) == (["main"] if shown else [])
