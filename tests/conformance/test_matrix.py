"""The suite is right: the good plugin passes, and each switch fails the checks it is for.

A part of the matrix; ``make conformance`` carries out all of it.
"""

from __future__ import annotations

import pytest

from devicemanager.conformance import Check, Outcome, Scene, all_checks, run, select
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import CASES, GOOD, NOTHING_FAILS, Case, broken, limits, subject

_SETTINGS = Settings(durability="process", dial_timeout=1.0)

_PART = {
    "hot-loop", "ignores-stream", "stale-handlers", "no-unlink", "unlink-by-name", "delta",
    "leak-handlers", "last-only", "needs-all", "leaves-socket",
}  # fmt: skip
"""What most real plugins with a bug have wrong, and one of each family."""


def test_every_check_can_fail() -> None:
    failing = {id_ for case in CASES for id_ in case.fails}
    assert failing | set(NOTHING_FAILS) == {each.id for each in all_checks()}
    assert not failing & set(NOTHING_FAILS)


def test_whatever_else_a_switch_fails_has_a_reason() -> None:
    for case in CASES:
        assert bool(case.also) == bool(case.why), case.switch
        assert not {*case.also} & {*case.fails}, case.switch
    assert len({case.switch for case in CASES}) == len(CASES)


def _shares_or_in_part(check: Check) -> bool:
    """A plugin of its own costs half a second of a processor: here only the checks that share
    one have it, and those that a switch below makes fail."""
    failing = {id_ for case in CASES if case.switch in _PART for id_ in case.fails}
    return check.scene is not Scene.OWN or check.id in {"R01", *failing}


@pytest.mark.timeout(180)
def test_the_good_plugin_passes() -> None:
    chosen = [check for check in select(skip=["A07"]) if _shares_or_in_part(check)]
    report = run(subject(*GOOD), chosen, limits=limits(), settings=_SETTINGS)
    bad = [(each.check.id, each.seen) for each in report.verdicts if each.outcome.value in _BAD]
    assert bad == []
    assert {each.check.id for each in report.of(Outcome.SKIP)} == {"O04"}
    assert len(report.verdicts) > 50


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.switch) for c in CASES if c.switch in _PART])
def test_a_switch_fails_its_checks(case: Case) -> None:
    report = run(broken(case), select(case.fails), limits=limits(case), settings=_SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL] * len(case.fails)


_BAD = ("fail", "warn", "error")
