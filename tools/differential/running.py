"""Run many scenarios of one version on both sides, and count the results."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from tools.differential import ours
from tools.differential.comparing import Disagreement, Expected, compare, expected
from tools.differential.coverage import reached
from tools.differential.reference import Reference, ReferenceError
from tools.differential.scenarios import Scenario, is_real
from tools.differential.shrinking import Shows, shrink

Plain = dict[str, Any]

_RUNS: Final = 4
_MORE_RUNS: Final = 20
"""Number of runs for a scenario whose random facts may have more values."""
_MANY_RUNS: Final = 100
"""Number of runs for a scenario with a finding: the same random choice can repeat in a few runs."""
_REPEATS: Final = 29
"""Numbers of further runs, one request each, for a scenario that still has a finding.

A combination of random choices can be rare. One request of 3,000 runs would leave too many
goroutines behind.
"""


@attrs.frozen
class Finding:
    """Scenario with differences that no named deviation explains."""

    scenario: Scenario
    disagreements: tuple[Disagreement, ...]


@attrs.define
class Tally:
    """Results of many scenarios."""

    scenarios: int = 0
    facts: int = 0
    """Number of compared facts."""
    random: int = 0
    """Number of random facts that were compared with the values seen."""
    open: int = 0
    """Number of random facts that were not compared, because not all values were seen."""
    deviations: collections.Counter[str] = attrs.field(factory=collections.Counter)
    """Number of scenarios by deviation."""
    reached: collections.Counter[str] = attrs.field(factory=collections.Counter)
    """Number of scenarios that reach a message, step or branch, by its name."""
    findings: list[Finding] = attrs.field(factory=list)
    agreeing: list[tuple[Scenario, Expected, frozenset[str]]] = attrs.field(factory=list)
    """Scenarios without a finding and the names they reach, if ``keep`` is True."""

    @property
    def agreed(self) -> int:
        """Number of scenarios without a finding."""
        return self.scenarios - len(self.findings)


class Comparison:
    """Comparison of the reference and the mock at one kubelet version."""

    def __init__(self, reference: Reference, version: str, mode: ours.Mode | None = None) -> None:
        self._reference = reference
        self._version = version
        self._mode = mode or ours.Mode()

    def run(
        self,
        scenarios: Iterable[Scenario],
        most: int,
        *,
        keep: bool = False,
        found: Callable[[Finding], None] = lambda _: None,
    ) -> Tally:
        """Run the scenarios until there are ``most`` findings. Call ``found`` with each finding.

        ``keep``: True to store the scenarios that agree.
        """
        tally = Tally()
        for scenario in scenarios:
            tally.scenarios += 1
            answer, wanted, differing = self._compared(scenario)
            has_reached = self._reached(scenario, answer)
            tally.reached.update(has_reached)
            tally.facts += sum(map(len, wanted.steps))
            for seen in (seen for step in wanted.random for seen in step.values()):
                tally.random += seen.is_complete
                tally.open += not seen.is_complete
            tally.deviations.update({each.deviation.name for each in differing if each.deviation})
            if unexplained := _unexplained(differing):
                tally.findings.append(Finding(scenario, unexplained))
                found(tally.findings[-1])
            elif keep:
                tally.agreeing.append((scenario, wanted, has_reached))
            if len(tally.findings) >= most:
                break
        return tally

    def _compared(self, scenario: Scenario) -> tuple[Plain, Expected, list[Disagreement]]:
        """Compare a scenario. Add runs of the reference while they may explain a difference."""
        try:
            played = self._play(scenario)
        except Exception as error:  # a bug, which must not end the run
            return {}, Expected(), [Disagreement(0, "mock", "results", repr(error))]
        rounds: tuple[int, ...] = (_RUNS, _MORE_RUNS, _MANY_RUNS)
        if is_real(scenario):
            rounds = (1, *rounds)  # a run takes a second, and few facts are random
        for runs in rounds:
            answer, wanted, differing = self._once(scenario, runs, played)
            if not _unexplained(differing) and (runs >= _MORE_RUNS or not wanted.is_open):
                break
        return self._with_rare_runs(scenario, played, answer, wanted, differing)

    def _with_rare_runs(
        self,
        scenario: Scenario,
        played: Plain,
        answer: Plain,
        wanted: Expected,
        differing: list[Disagreement],
    ) -> tuple[Plain, Expected, list[Disagreement]]:
        """Add runs of the reference until they explain the difference, up to a limit."""
        repeats = self._repeats(scenario) if answer.get("runs") else 0
        for _ in range(repeats):
            if not _unexplained(differing):
                break
            more = self._reference.ask(scenario, _MANY_RUNS)
            if more.get("failed"):
                break
            answer["runs"] = list(_few_of_each([*answer["runs"], *more["runs"]]))
            wanted = self._expected(answer)
            differing = self._compare(scenario, wanted, played)
        return answer, wanted, differing

    def _once(
        self, scenario: Scenario, runs: int, played: Plain | None = None
    ) -> tuple[Plain, Expected, list[Disagreement]]:
        answer = self._reference.ask(scenario, runs)
        if answer.get("failed"):
            # On a busy machine, a wait can time out. Count only what fails again when it runs
            # alone.
            answer = self._reference.ask(scenario, 1)
        if answer.get("failed"):
            return {}, Expected(), [Disagreement(0, "reference", answer["failed"], "")]
        wanted = self._expected(answer)
        if played is None:
            played = self._play(scenario)
        return dict(answer), wanted, self._compare(scenario, wanted, played)

    # The comparison of another manager overrides these (``dra.running``).

    def _repeats(self, scenario: Scenario) -> int:
        return 0 if is_real(scenario) else _REPEATS

    def _play(self, scenario: Scenario) -> Plain:
        return ours.play(scenario, self._version, self._mode)

    def _expected(self, answer: Mapping[str, Any]) -> Expected:
        return expected(answer)

    def _compare(self, scenario: Scenario, wanted: Expected, played: Plain) -> list[Disagreement]:
        return compare(scenario, self._version, wanted, played, self._mode.quirks)

    def _reached(self, scenario: Scenario, answer: Plain) -> frozenset[str]:
        return reached(scenario, answer)

    def _shrink(self, scenario: Scenario, shows: Shows) -> Plain:
        return shrink(scenario, shows)

    def shrunk(self, finding: Finding) -> Finding:
        """Return the smallest scenario that has a disagreement about the same kind of fact."""
        # Do not compare the fact itself: a smaller scenario has other pods and devices.
        kind = _kind(finding.disagreements[0])

        def disagrees(scenario: Mapping[str, Any]) -> bool:
            try:
                found = self._once(scenario, 10)[2]
            except ReferenceError:
                raise
            except Exception:  # a reduced scenario can be invalid
                return False
            return any(each.deviation is None and _kind(each) == kind for each in found)

        smallest = self._shrink(finding.scenario, disagrees)
        found = _unexplained(self._once(smallest, _MANY_RUNS)[2])
        # With more runs, the smallest scenario may agree. Then the whole scenario is the finding.
        return Finding(smallest, found) if found else finding


def _few_of_each(runs: Iterable[Plain]) -> Iterator[Plain]:
    """Yield each run at most twice: a third equal run would show nothing new."""
    counts: collections.Counter[str] = collections.Counter()
    for run in runs:
        text = json.dumps(run, sort_keys=True)
        counts[text] += 1
        if counts[text] <= 2:
            yield run


def _unexplained(differing: Iterable[Disagreement]) -> tuple[Disagreement, ...]:
    return tuple(each for each in differing if each.deviation is None)


def _kind(of: Disagreement) -> str:
    return of.path.partition(" ")[0]
