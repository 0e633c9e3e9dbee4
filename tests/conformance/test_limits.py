"""Limits of the checks, and the restarts that are counted against them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance import CheckError, Limits, Usage
from devicemanager.conformance.checks.lifecycle import l04, l05
from devicemanager.conformance.clients import ClientLimits
from devicemanager.conformance.drivers.limits import DriverLimits
from devicemanager.conformance.limit_values import overridden
from devicemanager.conformance.outcomes import Failed, Skipped

DEFAULTS = {
    "start_seconds": 30.0,
    "recover_warn_seconds": 10.0,
    "recover_seconds": 60.0,
    "first_list_warn_seconds": 5.0,
    "refresh_seconds": 10.0,
    "idle_seconds": 15.0,
    "away_seconds": 5.0,
    "settle_seconds": 1.5,
    "restarts": 20,
    "warm_restarts": 3,
    "allocations": 1000,
    "parallel_allocations": 8,
    "parallel_rounds": 20,
    "single_devices": 64,
    "streams": 10,
    "stream_batches": 5,
    "changes": 50,
    "series_seconds": 15.0,
    "repeats": 3,
    "options_seconds": 1.0,
    "allocate_warn_seconds": 1.0,
    "allocate_seconds": 10.0,
    "preferred_seconds": 1.0,
    "pre_start_seconds": 30.0,
    "stop_seconds": 10.0,
    "stream_end_seconds": 10.0,
    "resend_seconds": 35.0,
    "register_attempts": 30,
    "register_window_seconds": 5.0,
    "register_delay_seconds": 9.0,
    "list_warn_bytes": 1048576,
    "list_bytes": 4194304,
    "messages_per_minute": 1.0,
    "extra_descriptors": 2,
    "extra_threads": 4,
    "extra_memory_share": 0.2,
    "extra_memory_bytes": 8388608,
    "idle_cpu_share": 0.01,
    "away_cpu_share": 0.05,
    "inotify_instances": 1,
    "random_preferences": 30,
    "same_preferences": 10,
}


def test_limits_have_the_documented_defaults() -> None:
    assert attrs.asdict(Limits()) == DEFAULTS
    assert attrs.asdict(Limits.thorough()) == DEFAULTS | {
        "idle_seconds": 60.0,
        "away_seconds": 60.0,
        "settle_seconds": 5.0,
        "register_window_seconds": 30.0,
    }


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), True, "3", None])
def test_limit_must_be_a_number_of_at_least_0(value: Any) -> None:
    with pytest.raises(CheckError) as raised:
        Limits(start_seconds=value)
    words = f"invalid limit start_seconds {value!r}: expected a number of at least 0"
    assert str(raised.value) == words
    assert Limits(start_seconds=0).start_seconds == 0


@pytest.mark.parametrize(
    ("limits", "name", "least"),
    [
        (Limits, "restarts", 1),
        (Limits, "allocations", 1),
        (Limits, "parallel_allocations", 1),
        (Limits, "changes", 1),
        (Limits, "repeats", 1),
        (Limits, "same_preferences", 1),
        (DriverLimits, "restarts", 1),
        (ClientLimits, "restarts", 2),
    ],
)
def test_counts_that_a_check_needs_have_a_minimum(limits: Any, name: str, least: int) -> None:
    with pytest.raises(CheckError) as raised:
        overridden(limits(), [f"{name}={least - 1}"])
    words = f"invalid limit {name} {least - 1}: expected a number of at least {least}"
    assert str(raised.value) == words
    assert getattr(overridden(limits(), [f"{name}={least}"]), name) == least


def test_count_must_be_a_whole_number() -> None:
    with pytest.raises(CheckError, match=r"^invalid limit restarts 2.5: expected a whole number$"):
        Limits(restarts=2.5)
    assert Limits(restarts=2, start_seconds=2.5).restarts == 2


def test_limits_are_overridden_by_texts() -> None:
    changed = Limits().overridden(["restarts=4", "idle_seconds=0.5", "away_seconds=1e1"])
    assert attrs.asdict(changed) == DEFAULTS | {
        "restarts": 4,
        "idle_seconds": 0.5,
        "away_seconds": 10.0,
    }
    for text, message in (
        ("x=1", f"unknown limit 'x': use one of {', '.join(DEFAULTS)}"),
        ("restarts=y", "invalid limit 'restarts=y': expected restarts=NUMBER"),
        ("restarts", "invalid limit 'restarts': expected restarts=NUMBER"),
        ("restarts=1.5", "invalid limit restarts 1.5: expected a whole number"),
    ):
        with pytest.raises(CheckError) as raised:
            Limits().overridden([text])
        assert str(raised.value) == message


class Run:
    """A run of a check whose plugin uses what ``usages`` say, one after the other."""

    def __init__(self, *usages: Usage, starts: int = 1) -> None:
        self.limits = Limits(restarts=2, warm_restarts=3, extra_descriptors=1)
        self.process = SimpleNamespace(starts=starts)
        self.plugin = SimpleNamespace(usage=iter(usages).__next__)
        self.done: list[object] = []

    def start(self) -> None:
        self.done.append("start")

    def settle(self, seconds: float) -> None:
        self.done.append(f"settle {seconds}")

    def restart_and_wait(self, number: int) -> None:
        self.done.append(number)

    def until(self, condition: Any, seconds: float) -> float | None:
        assert seconds == self.limits.stream_end_seconds
        return next((0.1 for _ in range(2) if condition()), None)


USED = Usage(descriptors=10, threads=5, memory=1, inotify=1, unix_listeners=1, processes=1)
MORE = attrs.evolve(USED, descriptors=12)


def test_l04_numbers_its_restarts_and_waits_for_connections_to_close() -> None:
    run = Run(USED, MORE, USED)
    assert l04.run(run) == str(USED)
    assert run.done == ["start", 1, 2, 3, "settle 0.5", 4, 5]


def test_l04_fails_for_a_plugin_that_keeps_more() -> None:
    with pytest.raises(Failed) as raised:
        l04.run(Run(USED, MORE, MORE))
    assert str(raised.value) == f"resource use after 2 restarts: {MORE}; before: {USED}"


def test_l04_is_skipped_for_a_plugin_that_exits_with_the_kubelet() -> None:
    run = Run(starts=2)
    with pytest.raises(
        Skipped, match=r"^the plugin exits when the kubelet stops, so it cannot leak$"
    ):
        l04.run(run)
    assert run.done == ["start", 1, 2, 3]


def test_l05_compares_the_share_of_a_core() -> None:
    run = Run()
    run.plugin.idle_cpu_share = 0.01
    assert l05.run(run) == "1.00% of a core"
    run.plugin.idle_cpu_share = 0.011
    with pytest.raises(Failed, match=r"^the idle plugin used 1.1% of a core, limit 1.0%$"):
        l05.run(run)
