"""Which tests run which lines, from one run of the suite with coverage contexts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs
import coverage

from tools.mutants.mutations import Mutant

__all__ = ["CannotMeasure", "Selection", "read_selection"]

_CHEAP, _FILES = 40, 2
LONGEST = 120.0
"""Seconds of tests that one mutant is given at most: the cheapest come first."""
NEARBY = 20.0
"""Seconds of tests that run other lines of the module, after those that run the mutant's."""

_MOST_WITHOUT_TRACE = 0.05
"""The share of tests that may run nothing of ours in their own process."""


class CannotMeasure(Exception):
    """The suite does not run, so nothing can be told about mutants."""


@attrs.frozen
class Selection:
    """``tests[file][line]``: the tests that run the line. ``seconds``: how long each takes
    that passes; the others are not used. ``reach``: how many lines each runs."""

    tests: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]
    reach: Mapping[str, int] = attrs.field(factory=dict)

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """The tests to try: after those that run the line, others of the module. What runs
        once in a process, at import or behind a cache, has left its trace with no test or
        with the first one only."""
        lines = self.tests.get(mutant.file, {})
        span = range(mutant.first, mutant.last + 1)
        running = frozenset[str]().union(*(lines.get(line, frozenset()) for line in span))
        others = frozenset[str]().union(*lines.values()) - running
        chosen = self._best(running, LONGEST)
        return chosen + self._best(others, NEARBY if chosen else LONGEST)

    def stages(self, tests: list[str]) -> list[list[str]]:
        """The tests in two turns. Most mutants die in the first: the cheap tests of the
        files that have most of them. Only what survives that loads all the other files."""
        cheap = tests[:_CHEAP]
        files = Counter(test.partition("::")[0] for test in cheap)
        best = {file for file, _ in files.most_common(_FILES)}
        first = [test for test in cheap if test.partition("::")[0] in best]
        rest = [test for test in tests if test not in set(first)]
        return [stage for stage in (first, rest) if stage]

    def expected(self, tests: list[str]) -> float:
        """How many seconds these tests took."""
        return sum(self.seconds[test] for test in tests)

    def _best(self, tests: frozenset[str], longest: float) -> list[str]:
        """The cheapest of these tests, then those that run little else: a dear test may be the
        one that is about this line. At least one, and no more than ``longest`` seconds allow."""
        passing = sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
        cheap = self._within(passing, longest / 2)
        left = longest - self.expected(cheap)
        others = sorted(passing[len(cheap) :], key=lambda test: self.reach.get(test, 0))
        return (cheap + self._within(others, left)) or passing[:1]

    def _within(self, ordered: list[str], longest: float) -> list[str]:
        total = 0.0
        for count, test in enumerate(ordered):
            total += self.seconds[test]
            if total > longest:
                return ordered[:count]
        return ordered


def read_selection(root: Path, data_file: Path, durations: Path) -> Selection:
    """``root``: the tree that the tests ran in; files are named relative to it.
    CannotMeasure if the traces of many tests are missing: a worker's file may be lost."""
    seconds: dict[str, float] = json.loads(durations.read_text())
    data = coverage.CoverageData(str(data_file))
    data.read()
    tests = {}
    for measured in data.measured_files():
        if Path(measured).is_relative_to(root):
            contexts = data.contexts_by_lineno(measured)
            tests[Path(measured).relative_to(root).as_posix()] = {
                line: frozenset(name.rpartition("|")[0] for name in names if name)
                for line, names in contexts.items()
            }
    reach = Counter[str]()
    for lines in tests.values():
        for names in lines.values():
            reach.update(names)
    missing = len(seconds.keys() - reach.keys())
    if missing > _MOST_WITHOUT_TRACE * len(seconds) + 1:
        raise CannotMeasure(f"{missing} of {len(seconds)} tests that passed left no trace")
    return Selection(tests, seconds, reach)
