"""Run many scenarios of one version in both, and count the results."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from tools.differential import ours
from tools.differential.comparing import Disagreement, Expected, compare, expected
from tools.differential.reference import Reference, ReferenceError
from tools.differential.shrinking import shrink

Plain = dict[str, Any]

_RUNS: Final = 4
_MORE_RUNS: Final = 100
"""Runs of a scenario with a finding, because a random choice can repeat in a few runs."""


@attrs.frozen
class Finding:
    """Scenario with differences that no named deviation explains."""

    scenario: Mapping[str, Any]
    disagreements: tuple[Disagreement, ...]


@attrs.define
class Tally:
    """Results of many scenarios."""

    scenarios: int = 0
    facts: int = 0
    """Number of compared facts."""
    random: int = 0
    """Number of facts that the reference selects at random."""
    deviations: collections.Counter[str] = attrs.field(factory=collections.Counter)
    """Number of scenarios per named deviation."""
    findings: list[Finding] = attrs.field(factory=list)
    agreeing: list[tuple[Mapping[str, Any], Expected]] = attrs.field(factory=list)
    """Scenarios without a finding, if requested with ``keep``."""

    @property
    def agreed(self) -> int:
        """Number of scenarios without a finding."""
        return self.scenarios - len(self.findings)


class Comparison:
    """Comparison of both sides at one version."""

    def __init__(self, reference: Reference, version: str) -> None:
        self._reference = reference
        self._version = version

    def run(
        self, scenarios: Iterable[Mapping[str, Any]], most: int, *, keep: bool = False
    ) -> Tally:
        """Run the scenarios until there are ``most`` findings.

        ``keep`` stores the scenarios that agree, with the results of many reference runs.
        """
        tally = Tally()
        for scenario in scenarios:
            tally.scenarios += 1
            wanted, found = self._compared(scenario, _MORE_RUNS if keep else _RUNS)
            # More runs may show that the difference is a random choice of the reference.
            if not keep and any(each.deviation is None for each in found):
                wanted, found = self._compared(scenario, _MORE_RUNS)
            tally.facts += sum(map(len, wanted.steps))
            tally.random += sum(map(len, wanted.random))
            for name in {each.deviation.name for each in found if each.deviation}:
                tally.deviations[name] += 1
            if unexplained := tuple(each for each in found if each.deviation is None):
                tally.findings.append(Finding(scenario, unexplained))
            elif keep:
                tally.agreeing.append((scenario, wanted))
            if len(tally.findings) >= most:
                break
        return tally

    def disagreements(self, scenario: Mapping[str, Any], runs: int) -> list[Disagreement]:
        """Return all disagreements, including named deviations."""
        return self._compared(scenario, runs)[1]

    def _compared(
        self, scenario: Mapping[str, Any], runs: int
    ) -> tuple[Expected, list[Disagreement]]:
        answer = self._reference.ask(scenario, runs)
        if answer.get("failed"):
            return Expected(), [Disagreement(0, "reference", answer["failed"], "")]
        wanted = expected(answer)
        found = compare(scenario, self._version, wanted, ours.play(scenario, self._version))
        return wanted, found

    def shrunk(self, finding: Finding) -> Finding:
        """Return the smallest scenario with a disagreement about the same kind of fact."""
        # Not the same fact: a smaller scenario has other pods and devices.
        kind = _kind(finding.disagreements[0])

        def disagrees(scenario: Mapping[str, Any]) -> bool:
            try:
                found = self.disagreements(scenario, 10)
            except ReferenceError:
                raise
            except Exception:  # a reduced scenario can be invalid
                return False
            return any(each.deviation is None and _kind(each) == kind for each in found)

        smallest = shrink(finding.scenario, disagrees)
        found = self.disagreements(smallest, _MORE_RUNS)
        return Finding(smallest, tuple(each for each in found if each.deviation is None))


def _kind(of: Disagreement) -> str:
    return of.path.partition(" ")[0]
