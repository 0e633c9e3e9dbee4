"""Run the conformance checks as pytest tests, one test per check."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import attrs

from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import CheckError, Outcome
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.registry import Check, selected
from devicemanager.conformance.reports.text import explain
from devicemanager.conformance.runner import run
from devicemanager.conformance.suite import PLUGINS, Suite
from devicemanager.conformance.waivers import Waivers

__all__ = ["ConformanceWarning", "pytest_checks"]


class ConformanceWarning(UserWarning):
    """Warning for a check whose outcome is a warning: the plugin passes only barely, or fails a
    check of severity INFO."""


def pytest_checks(
    plugin: PluginUnderTest,
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    limits: Limits | None = None,
    seed: int = 1,
    waivers: Waivers | None = None,
    suite: Suite = PLUGINS,
) -> Callable[..., None]:
    """Return a parametrized pytest test with one case per check. Assign it to a name that starts
    with ``test_``.

    ``only`` and ``skip`` have IDs of checks or letters of families. If a check fails, its test
    fails. If a check does not apply, its test is skipped. A warning of a check becomes a
    ConformanceWarning. Each test starts the plugin again. ``suite`` selects the checks of plugins
    or of drivers. Raises CheckError for unknown checks.
    """
    import pytest  # here, because the package can be used without pytest

    chosen = selected(suite.checks(), suite.families, only, skip)
    cases = [pytest.param(each, id=each.id) for each in chosen]
    # The tests share what the first one has found: the plugin's resources, or that it has none or
    # does not register. So only the first test waits for this.
    resources = plugin.resources
    error_of_all, registers = "", True

    @pytest.mark.parametrize("check", cases)
    def test(check: Check) -> None:
        nonlocal resources, error_of_all, registers
        if error_of_all:
            raise CheckError(error_of_all)
        if not registers and check.needs_registration:
            pytest.skip(f"the {plugin.kind} does not register: see check {suite.first}")
        known = attrs.evolve(plugin, resources=resources)
        try:
            report = run(
                known, [check], limits=limits, seed=seed, waivers=waivers, jobs=1, suite=suite
            )
        except CheckError as error:
            error_of_all = str(error)
            raise
        resources = report.resources
        [verdict] = report.verdicts
        registers = registers and (check.id, verdict.outcome) != (suite.first, Outcome.FAIL)
        match verdict.outcome:
            case Outcome.SKIP | Outcome.WAIVED:
                pytest.skip(verdict.seen)
            case Outcome.WARN:
                warnings.warn(ConformanceWarning(f"{check.id}: {verdict.seen}"), stacklevel=1)
            case Outcome.FAIL | Outcome.ERROR:
                # A traceback would show code of the suite, but the fault is in the plugin.
                pytest.fail(explain(verdict), pytrace=False)

    checks: Callable[..., None] = test
    return checks
