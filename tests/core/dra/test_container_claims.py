"""The CDI devices of a container, where kubelet versions differ."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.containers import container_cdi
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.model import (
    ClaimInfo,
    ContainerClaim,
    ContainerClaims,
    DriverState,
    ExtendedClaim,
    PodClaim,
    PodClaims,
    PreparedDevice,
)
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
