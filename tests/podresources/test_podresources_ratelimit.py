"""The token bucket of the PodResources API: 100 calls per second, bursts of 10."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podresources import TokenBucket


def allowed(bucket: TokenBucket, *times: float) -> list[bool]:
    return [bucket.allow(now) for now in times]


def test_burst_is_accepted_at_once():
    assert allowed(TokenBucket(100, 10), *[5.0] * 12) == [True] * 10 + [False] * 2


def test_token_returns_every_ten_milliseconds():
    bucket = TokenBucket(100, 10)
    allowed(bucket, *[0.0] * 10)
    assert allowed(bucket, 0.009, 0.01, 0.01, 0.019, 0.02) == [False, True, False, False, True]


def test_rejected_calls_use_no_token():
    bucket = TokenBucket(100, 1)
    assert bucket.allow(0.0)
    assert not any(allowed(bucket, *[n / 1000 for n in range(1, 10)]))
    assert bucket.allow(0.01)


def test_idle_time_saves_at_most_burst():
    bucket = TokenBucket(100, 2)
    allowed(bucket, 0.0, 0.0)
    assert allowed(bucket, 3600.0, 3600.0, 3600.0) == [True, True, False]


def test_clock_going_back_changes_nothing():
    bucket = TokenBucket(1, 2)
    assert allowed(bucket, 100.0, 50.0, 50.0, 50.5, 51.0) == [True, True, False, False, True]


def test_shortfall_below_nanosecond_is_ignored():
    bucket = TokenBucket(100, 1)
    assert bucket.allow(0.0)
    assert not bucket.allow(0.01 - 2e-9)
    assert bucket.allow(0.01 - 0.5e-9)


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_invalid_limits_are_rejected(qps, burst):
    with pytest.raises(ValueError, match=r"^invalid (qps|burst)"):
        TokenBucket(qps, burst)


@given(
    qps=st.integers(1, 1000),
    burst=st.integers(1, 50),
    steps=st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_never_more_than_burst_plus_rate_in_any_window(qps, burst, steps):
    bucket, now, passed = TokenBucket(qps, burst), 0.0, []
    for step in steps:
        now += step
        if bucket.allow(now):
            passed.append(now)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            window = passed[last] - passed[first]
            assert last - first + 1 <= burst + window * qps + 1e-6


@given(qps=st.integers(1, 1000), burst=st.integers(1, 50))
def test_caller_below_rate_is_never_rejected(qps, burst):
    bucket = TokenBucket(qps, burst)
    assert all(allowed(bucket, *[n / qps for n in range(3 * burst)]))
