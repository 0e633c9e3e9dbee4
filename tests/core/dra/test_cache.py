"""The claims of a node in memory, and what is read from it."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.dra.cache import ClaimCache, with_pod, without_pod
from devicemanager.core.dra.model import ClaimInfo, ClaimKey, DriverState
from devicemanager.core.dra.unprepare import InactivePod, inactive_pods
from tests.dra_world import GPU, NIC


def claim(name: str, pods: str = "", namespace: str = "ns") -> ClaimInfo:
    return ClaimInfo(namespace, name, f"{name}-uid", frozenset(pods))


claims = st.builds(claim, st.sampled_from("abc"), st.text("xyz", max_size=3), st.sampled_from("mn"))


@given(st.lists(claims), st.lists(st.tuples(st.booleans(), claims)))
def test_cache_has_the_last_claim_of_each_name(first, changes):
    cache = ClaimCache(first)
    expected = {each.key: each for each in first}
    for is_added, each in changes:
        before = cache.snapshot()
        assert cache.snapshot() is before
        if is_added:
            assert cache.put(each) is each
            expected[each.key] = each
        else:
            cache.remove(each.key)
            expected.pop(each.key, None)
    held = tuple(expected[key] for key in sorted(expected))
    assert cache.snapshot() == tuple(cache) == held
    assert len(cache) == len(held)
    assert [cache.get(each.key) for each in held] == list(held)
    assert cache.get(ClaimKey("m", "other")) is None
    for uid in "xyz":
        of_pod = tuple(each for each in held if uid in each.pods)
        assert cache.of_pod(uid) == of_pod
        assert cache.might_need_unprepare(uid) is bool(of_pod)


def test_pods_of_a_claim_change_only_in_the_copy():
    one = claim("c", "x")
    assert with_pod(one, "x") is one
    two = with_pod(one, "y")
    assert (one.pods, two.pods) == ({"x"}, {"x", "y"})
    assert (without_pod(two, "x").pods, two.pods) == ({"y"}, {"x", "y"})
    assert without_pod(one, "other") == one


def test_claims_are_in_preparation_until_their_generator_ends():
    cache = ClaimCache()
    a, b, c = (ClaimKey("ns", name) for name in "abc")
    first, second = object(), object()
    cache.begin_preparing([a, b], first)
    cache.begin_preparing([c], second)
    assert [cache.is_preparing(each) for each in (a, b, c)] == [True, True, True]
    cache.end_preparing(first)
    assert [cache.is_preparing(each) for each in (a, b, c)] == [False, False, True]


def test_skipped_calls_are_counted_by_driver():
    cache = ClaimCache()
    states = {
        GPU: DriverState(skips=("NodePrepareResources",)),
        NIC: DriverState(skips=("*",)),
        "other": DriverState(),
    }
    one = attrs.evolve(claim("c"), drivers=states)
    for rpc in ("NodePrepareResources", "NodePrepareResources", "NodeUnprepareResources"):
        cache.count_skipped(one, rpc)
    assert cache.skipped == {
        ("NodePrepareResources", GPU): 2,
        ("NodePrepareResources", NIC): 2,
        ("NodeUnprepareResources", NIC): 1,
    }


def test_inactive_pods_have_their_claims():
    cache = ClaimCache(
        [claim("b", "xz"), claim("a", "zy"), claim("c", "w", namespace="a"), claim("d")]
    )
    assert inactive_pods(cache, {"y"}) == [
        InactivePod("w", "a", ("c",)),
        InactivePod("x", "ns", ("b",)),
        InactivePod("z", "ns", ("a", "b")),
    ]
    assert inactive_pods(cache, set("wxyz")) == []
