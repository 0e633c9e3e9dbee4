"""CPU and memory that containers use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Container
from devicemanager.core.usage import Amount, CpuCounter, PodUsage, Usage

MAIN = Container(
    ContainerName("main"),
    requests={ResourceName("cpu"): 2000, ResourceName("memory"): 1 << 30},
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("250m", Amount(0.25)),
        ("1Gi", Amount(1 << 30)),
        ("80%", Amount(0.8, True)),
        ("0.5%", Amount(0.005, True)),
    ],
)
def test_amount_is_a_quantity_or_a_share(text: str, amount: Amount) -> None:
    assert Amount.parse(text) == amount


@pytest.mark.parametrize("text", ["", "%", "-1", "-5%", "much", "1%%"])
def test_other_amounts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid usage .*: use a form such as 250m, 1Gi or"):
        Amount.parse(text)


@pytest.mark.parametrize(
    ("text", "amount"), [("0%", 0.0), ("80%", 0.8), ("100%", 1.0), ("101%", None), ("1", None)]
)
def test_share_is_at_most_the_whole_request(text: str, amount: float | None) -> None:
    if amount is not None:
        assert Amount.parse_share(text) == Amount(amount, True)
        return
    with pytest.raises(ValueError, match=r"^invalid usage") as raised:
        Amount.parse_share(text)
    assert str(raised.value) == (
        f"invalid usage {text!r}: use a percentage up to 100%, such as 80%"
    )


def test_invalid_share_is_an_error_with_its_first_characters() -> None:
    with pytest.raises(ValueError, match=r"use a percentage up to 100%") as raised:
        Amount.parse_share("x" * 99)
    assert "x" * 60 in str(raised.value) and "x" * 61 not in str(raised.value)


def test_share_is_of_the_request_of_the_container() -> None:
    usage = Usage(Amount.parse("25%"), Amount.parse("50%"))
    assert (usage.cores(MAIN), usage.memory_bytes(MAIN)) == (0.5, 1 << 29)


def test_container_without_usage_is_idle() -> None:
    # metrics-server drops containers that use nothing.
    assert (Usage().cores(MAIN), Usage().memory_bytes(MAIN)) == (0.001, 1 << 20)


def test_cpu_time_continues_after_a_change_and_begins_again_with_a_restart() -> None:
    usage = PodUsage(Usage(Amount(2.0)))
    assert usage.cpu_seconds(MAIN, 100.0, 110.0) == 20.0
    changed = usage.changed(Usage(Amount(1.0)), [(MAIN, 100.0)], 110.0)
    assert changed.cpu_seconds(MAIN, 100.0, 115.0) == 25.0
    assert changed.cpu_seconds(MAIN, 113.0, 115.0) == 2.0


Steps = st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 8.0)), max_size=8)


@given(Steps)
def test_cpu_time_never_decreases(steps: list[tuple[float, float]]) -> None:
    usage, counter, now = PodUsage(Usage()), CpuCounter(0.0), 0.0
    before = of_node = 0.0
    for seconds, cores in steps:
        now += seconds
        usage = usage.changed(Usage(Amount(cores)), [(MAIN, 0.0)], now)
        after = usage.cpu_seconds(MAIN, 0.0, now)
        assert after >= before - 1e-9
        total = counter.update(cores, now)
        assert total >= of_node
        before, of_node = after, total


def test_node_counter_ignores_a_clock_that_goes_back() -> None:
    counter = CpuCounter(10.0)
    assert counter.update(1.0, 12.0) == 2.0
    assert counter.update(1.0, 11.0) == 2.0
    assert counter.update(1.0, 13.0) == 3.0
