"""The suite judges correctly: the good plugin passes, and each switch fails its own checks.

This is a large part of the matrix, in a tenth of its time; ``make conformance`` runs all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs
import pytest

from devicemanager.conformance import (
    CheckRun,
    Failed,
    Outcome,
    Severity,
    Stage,
    Warned,
    all_checks,
    run,
    select,
)
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import (
    CASES,
    GOOD,
    NOTHING_FAILS,
    SUBJECTS,
    Case,
    broken,
    limits,
    plugin,
)

_SETTINGS = Settings(durability="process", dial_timeout=1.0)
_BY_SWITCH = {case.switch: case for case in CASES}

_ALONE = (
    "hot-loop", "exit-without-kubelet",
    "spin-when-away", "ignores-stream", "stale-handlers",
    "no-unlink", "unlink-by-name", "random-ids", "mount-removed",
    "delta", "no-break", "no-heal", "drop-broken", "no-empty", "leak-handlers",
    "accept-broken", "late-allocatable", "prepare-needs-allocate",
    "leaves-socket", "removes-others", "two-watches", "silent", "panics",
    "first-stream-only", "no-library", "waits-for-readers",
)  # fmt: skip
"""Switches of checks that start a plugin for themselves. Left out are those that take long, and
those whose fault is a race that a busy machine can lose."""

_TOGETHER = (
    ("accept-unknown", "order-matters", "changes", "relative-path", "no-mount",
     "bad-cdi", "bad-annotation", "shared-node"),
    ("twice-listed", "numa-unknown", "options-differ", "no-preference", "no-pre-start",
     "per-device", "registry-type"),
    ("empty-topology", "lowercase-health", "long-ids"),
    ("numa-moves", "no-device", "no-edges", "one-preference", "prepare-unknown", "prepare-once",
     "answers-anything", "slots"),
    ("same-variable", "random-preference", "large-list", "accept-partly", "exit-on-empty"),
    ("two-hosts", "last-only"),
    ("ignores-must", "slow-options", "needs-all", "exit-on-infeasible"),
    ("exit-on-odd-call",),
)  # fmt: skip
"""Groups of switches that do not hide each other. Those that end the plugin are last."""


@pytest.mark.timeout(60)
def test_kill_by_a_check_does_not_change_how_others_stop_the_plugin() -> None:
    """K10 kills the plugin. K14 must still see what the plugin does at SIGTERM."""
    case = _BY_SWITCH["mount-removed"]
    report = run(
        broken(case), select(["K10", "K14"]), jobs=1, limits=limits(case), settings=_SETTINGS
    )
    outcomes = [each.outcome for each in report.verdicts]
    assert outcomes == [Outcome.PASS, Outcome.FAIL], [each.seen for each in report.verdicts]


def test_each_check_has_a_switch_that_fails_it() -> None:
    failing = {id_ for case in CASES for id_ in case.fails}
    assert failing | set(NOTHING_FAILS) == {each.id for each in all_checks()}
    assert not failing & set(NOTHING_FAILS)


def test_side_effects_of_switches_have_a_reason() -> None:
    for case in CASES:
        assert bool(case.also or case.may) == bool(case.why), case.switch
        assert not {*case.also} & {*case.fails}, case.switch
    assert len(_BY_SWITCH) == len(CASES)


@pytest.mark.timeout(180)
def test_good_plugin_passes() -> None:
    report = run(plugin(*GOOD), all_checks(), limits=limits(), settings=_SETTINGS)
    bad = report.of(Outcome.FAIL, Outcome.WARN, Outcome.ERROR)
    assert [(each.check.id, each.seen) for each in bad] == []
    assert {each.check.id for each in report.of(Outcome.SKIP)} == {"O04", "K15"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_correct_plugins_of_all_kinds_pass(kind: str) -> None:
    """The suite has judged each of them wrongly before."""
    subject = SUBJECTS[kind]
    report = run(
        attrs.evolve(plugin(*subject.switches), restart=subject.restart),
        select(subject.checks),
        limits=limits(subject),
        settings=_SETTINGS,
    )
    outcomes = {each.check.id: each.outcome for each in report.verdicts}
    passed = {id_ for id_, outcome in outcomes.items() if outcome is Outcome.PASS}
    assert passed == {*subject.checks} - {*subject.waived}, [each.seen for each in report.verdicts]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("switch", _ALONE)
def test_switch_fails_its_checks(switch: str) -> None:
    case = _BY_SWITCH[switch]
    report = run(broken(case), select(case.fails), limits=limits(case), settings=_SETTINGS)
    if "R01" not in case.fails:
        # Otherwise a plugin that starts too slowly on a busy machine would look like the fault.
        assert [each.seen for each in report.verdicts if "after its start" in each.seen] == []
    outcomes = [(each.check.severity, each.outcome) for each in report.verdicts]
    assert all(
        outcome is (Outcome.WARN if severity is Severity.INFO else Outcome.FAIL)
        for severity, outcome in outcomes
    ), outcomes


@contextlib.contextmanager
def _stage(*cases: Case) -> Iterator[tuple[Stage, tuple[str, ...]]]:
    """Start one plugin with the switches of all cases. Return its stage and its resources."""
    switches = [name for case in cases for name in (case.switch, *case.base)]
    resources = max((broken(case).resources for case in cases), key=len)
    changes = {name: value for case in cases for name, value in case.limits.items()}
    stage = Stage(plugin(*switches), attrs.evolve(limits(), **changes), _SETTINGS)
    with contextlib.closing(stage):
        CheckRun(stage, resources, "start").start()
        yield stage, resources


@pytest.mark.parametrize("switches", _TOGETHER, ids=lambda group: group[0])
def test_switches_together_fail_their_checks(switches: tuple[str, ...]) -> None:
    """With one plugin for many checks, which start nothing."""
    cases = [_BY_SWITCH[switch] for switch in switches]
    with _stage(*cases) as (stage, resources):
        for case in cases:
            for check in select(case.fails):
                with pytest.raises((Failed, Warned)):
                    check.run(CheckRun(stage, resources, "seed"))
                    pytest.fail(f"{check.id} passes with {case.switch}")


@pytest.mark.parametrize("switches", [("chatty", "leaky-idle"), ("reregister",)])
def test_switches_of_an_idle_plugin_fail_their_checks(switches: tuple[str, ...]) -> None:
    cases = [_BY_SWITCH[switch] for switch in switches]
    with _stage(*cases) as (stage, resources):
        runs = [CheckRun(stage, resources, "seed") for _ in cases]
        stage.plugin.begin_idle()
        runs[0].settle(stage.limits.idle_seconds)
        for case, check_run in zip(cases, runs, strict=True):
            [check] = select(case.fails)
            with pytest.raises(Failed):
                check.run(check_run)
                pytest.fail(f"{check.id} passes with {case.switch}")
