"""What happened, added up."""

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


def tally(*happened, policy="container"):
    made = Tally(
        aligns=policy != "none",
        guarantees=policy in ("container", "pod"),
        per_pod=policy == "pod",
    )
    for each in happened:
        made.add(each)
    return made


def test_the_buckets_are_the_kubelets():
    assert SECONDS == (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
    assert [f"{each:g}" for each in MILLISECONDS] == [
        "0.05", "0.1", "0.2", "0.4", "0.8", "1.6", "3.2", "6.4", "12.8", "25.6", "51.2", "102.4",
        "204.8", "409.6", "819.2",
    ]  # fmt: skip


@given(st.lists(st.floats(0, 2000)))
def test_a_value_counts_in_each_bucket_that_it_is_not_above(values):
    histogram = Histogram(MILLISECONDS)
    for value in values:
        histogram.observe(value)
    assert histogram.count == len(values)
    assert math.isclose(histogram.sum, sum(values))
    for bound, count in histogram.cumulative():
        assert count == sum(value <= bound for value in values)
    assert bisect_left(MILLISECONDS, 0.05) == 0


def test_plugins():
    made = tally(Registered("a/b"), Registered("a/b"), Registered("a/c"), Allocated("a/b", 0.3))
    assert made.registrations == {"a/b": 2, "a/c": 1}
    assert [count for _, count in made.allocations["a/b"].cumulative()] == [0] * 6 + [1] * 5


def test_names_without_end_are_not_told_apart():
    names = [f"a/{number}" for number in range(MOST_RESOURCES + 5)]
    made = tally(*map(Registered, names), *(Allocated(name, 1) for name in names))
    assert len(made.registrations) == len(made.allocations) == MOST_RESOURCES + 1
    assert made.registrations[OTHERS] == made.allocations[OTHERS].count == 5
    made.add(Registered(names[0]))
    assert made.registrations[names[0]] == 2


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (UNEXPECTED, UNEXPECTED),
        (TOPOLOGY, TOPOLOGY),
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfephemeral-storage", "OutOfephemeral-storage"),
        ("OutOfvendor.com/gpu", "OutOfExtendedResources"),
        ("Whatever", "Other"),
    ],
)
def test_reasons_are_those_that_the_kubelet_tells_apart(reason, label):
    assert tally(Admitted(0, 0, reason), Admitted(0, 0)).rejections == {label: 1}


@pytest.mark.parametrize(
    ("policy", "errors", "aligned", "not_aligned"),
    [("none", 0, 0, 0), ("restricted", 2, 0, 0), ("container", 2, 2 + 2 + 1, 1), ("pod", 2, 2, 1)],
)
def test_alignment(policy, errors, aligned, not_aligned):
    """One is admitted, one does not fit the node, one is not aligned, one not allocated."""
    made = tally(
        Admitted(0.0019, 2),
        Admitted(0.0019, 2, "OutOfcpu"),
        Admitted(0.0019, 0, TOPOLOGY),
        Admitted(0.0019, 1, UNEXPECTED),
        policy=policy,
    )
    assert (made.errors, made.aligned, made.not_aligned) == (errors, aligned, not_aligned)
    assert (made.admissions.count, made.admissions.sum) == (4, 4.0)  # whole milliseconds
