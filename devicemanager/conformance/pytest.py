"""The checks as tests: one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from devicemanager.conformance.limits import Limits
from devicemanager.conformance.model import Check
from devicemanager.conformance.outcomes import CheckError, Outcome
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.registry import select
from devicemanager.conformance.reports.text import told
from devicemanager.conformance.runner import FIRST, run
from devicemanager.conformance.waivers import Waivers

__all__ = ["pytest_checks"]


def pytest_checks(
    subject: PluginUnderTest,
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    limits: Limits | None = None,
    seed: int = 1,
    waivers: Waivers | None = None,
) -> Callable[..., None]:
    """One test for each check: assign it to a name that begins with ``test_``.

    A check that fails fails its test, one that does not apply skips it, a warning is shown as
    such. Each starts the plugin anew. Raises CheckError for a check that there is not.
    """
    import pytest

    chosen = select(only, skip)
    marks = [pytest.param(each, id=each.id) for each in chosen]
    resources = subject.resources
    never_came, registers = "", True

    @pytest.mark.parametrize("check", marks)
    def test(check: Check) -> None:
        nonlocal resources, never_came, registers
        # What the first tests have waited for in vain, the others need not wait for again.
        if never_came:
            raise CheckError(never_came)
        if not registers and not check.unregistered:
            pytest.skip(f"the plugin does not register: see {FIRST}")
        known = attrs.evolve(subject, resources=resources)
        try:
            report = run(known, [check], limits=limits, seed=seed, waivers=waivers, jobs=1)
        except CheckError as error:
            never_came = str(error)
            raise
        resources = report.resources  # found out by the first test, at the cost of a start
        [verdict] = report.verdicts
        registers = registers and (check.id, verdict.outcome) != (FIRST, Outcome.FAIL)
        match verdict.outcome:
            case Outcome.SKIP | Outcome.WAIVED:
                pytest.skip(verdict.seen)
            case Outcome.WARN:
                import warnings

                warnings.warn(ConformanceWarning(f"{check.id}: {verdict.seen}"), stacklevel=1)
            case Outcome.FAIL | Outcome.ERROR:
                pytest.fail(told(verdict), pytrace=False)

    checked: Callable[..., None] = test
    return checked


class ConformanceWarning(UserWarning):
    """A plugin does what it must, but not well."""
