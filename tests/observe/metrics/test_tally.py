"""Sums of observations."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.metrics.tally import (
    MILLISECONDS,
    MOST_RESOURCES,
    OTHERS,
    SECONDS,
    Admitted,
    Allocated,
    Histogram,
    Registered,
    Tally,
)

UNEXPECTED, TOPOLOGY = "UnexpectedAdmissionError", "TopologyAffinityError"


def tally(*observations, policy="container"):
    sums = Tally(
        aligns=policy != "none",
        guarantees=policy in ("container", "pod"),
        per_pod=policy == "pod",
    )
    for each in observations:
        sums.add(each)
    return sums


def test_buckets_equal_the_kubelets():
    assert SECONDS == (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
    assert [f"{each:g}" for each in MILLISECONDS] == [
        "0.05", "0.1", "0.2", "0.4", "0.8", "1.6", "3.2", "6.4", "12.8", "25.6", "51.2", "102.4",
        "204.8", "409.6", "819.2",
    ]  # fmt: skip


@given(st.lists(st.floats(0, 2000)))
def test_histogram_counts_value_in_each_bucket_above_it(values):
    histogram = Histogram(MILLISECONDS)
    for value in values:
        histogram.observe(value)
    assert histogram.count == len(values)
    assert math.isclose(histogram.sum, sum(values))
    for bound, count in histogram.cumulative():
        assert count == sum(value <= bound for value in values)
    assert bisect_left(MILLISECONDS, 0.05) == 0


def test_tally_counts_registrations_and_allocations():
    sums = tally(Registered("a/b"), Registered("a/b"), Registered("a/c"), Allocated("a/b", 0.3))
    assert sums.registrations == {"a/b": 2, "a/c": 1}
    assert [count for _, count in sums.allocations["a/b"].cumulative()] == [0] * 6 + [1] * 5


def test_tally_limits_number_of_resources():
    names = [f"a/{number}" for number in range(MOST_RESOURCES + 5)]
    sums = tally(*map(Registered, names), *(Allocated(name, 1) for name in names))
    assert len(sums.registrations) == len(sums.allocations) == MOST_RESOURCES + 1
    assert sums.registrations[OTHERS] == sums.allocations[OTHERS].count == 5
    sums.add(Registered(names[0]))
    assert sums.registrations[names[0]] == 2


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (UNEXPECTED, UNEXPECTED),
        (TOPOLOGY, TOPOLOGY),
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfephemeral-storage", "OutOfephemeral-storage"),
        ("OutOfvendor.com/gpu", "OutOfExtendedResources"),
        ("AnythingElse", "Other"),
    ],
)
def test_rejection_reasons_have_the_kubelets_labels(reason, label):
    assert tally(Admitted(0, 0, reason), Admitted(0, 0)).rejections == {label: 1}


@pytest.mark.parametrize(
    ("policy", "errors", "aligned", "not_aligned"),
    [("none", 0, 0, 0), ("restricted", 2, 0, 0), ("container", 2, 2 + 2 + 1, 1), ("pod", 2, 2, 1)],
)
def test_tally_counts_alignment_by_policy(policy, errors, aligned, not_aligned):
    """One pod is admitted, one does not fit the node, one is not aligned, one not allocated."""
    sums = tally(
        Admitted(0.0019, 2),
        Admitted(0.0019, 2, "OutOfcpu"),
        Admitted(0.0019, 0, TOPOLOGY),
        Admitted(0.0019, 1, UNEXPECTED),
        policy=policy,
    )
    assert (sums.errors, sums.aligned, sums.not_aligned) == (errors, aligned, not_aligned)
    assert (sums.admissions.count, sums.admissions.sum) == (4, 4.0)  # whole milliseconds
