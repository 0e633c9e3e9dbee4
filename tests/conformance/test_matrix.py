"""The suite judges correctly: the good plugin passes, and each switch fails its own checks.

This is a part of the matrix; ``make conformance`` runs all of it.
"""

from __future__ import annotations

import pytest

from devicemanager.conformance import Check, Outcome, Scene, all_checks, run, select
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import CASES, GOOD, NOTHING_FAILS, Case, broken, limits, plugin

_SETTINGS = Settings(durability="process", dial_timeout=1.0)

_PART = {
    "hot-loop", "ignores-stream", "stale-handlers", "no-unlink", "unlink-by-name", "delta",
    "leak-handlers", "last-only", "needs-all", "leaves-socket",
}  # fmt: skip
"""The most frequent faults of real plugins, and one fault of each family."""


def test_each_check_has_a_switch_that_fails_it() -> None:
    failing = {id_ for case in CASES for id_ in case.fails}
    assert failing | set(NOTHING_FAILS) == {each.id for each in all_checks()}
    assert not failing & set(NOTHING_FAILS)


def test_side_effects_of_switches_have_a_reason() -> None:
    for case in CASES:
        assert bool(case.also) == bool(case.why), case.switch
        assert not {*case.also} & {*case.fails}, case.switch
    assert len({case.switch for case in CASES}) == len(CASES)


def _is_cheap_or_in_part(check: Check) -> bool:
    """Return True for checks that share a stage, and for those of the switches above. Any other
    check needs half a second of CPU for a plugin of its own."""
    failing = {id_ for case in CASES if case.switch in _PART for id_ in case.fails}
    return check.scene is not Scene.OWN or check.id in {"R01", *failing}


@pytest.mark.timeout(180)
def test_good_plugin_passes() -> None:
    chosen = [check for check in select(skip=["A07"]) if _is_cheap_or_in_part(check)]
    report = run(plugin(*GOOD), chosen, limits=limits(), settings=_SETTINGS)
    bad = report.of(Outcome.FAIL, Outcome.WARN, Outcome.ERROR)
    assert [(each.check.id, each.seen) for each in bad] == []
    assert {each.check.id for each in report.of(Outcome.SKIP)} == {"O04"}
    assert len(report.verdicts) > 50


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.switch) for c in CASES if c.switch in _PART])
def test_switch_fails_its_checks(case: Case) -> None:
    report = run(broken(case), select(case.fails), limits=limits(case), settings=_SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL] * len(case.fails)
