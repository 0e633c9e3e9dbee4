"""Select tests for a mutant, from one run of the suite with coverage contexts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs
import coverage

from tools.mutants.mutations import Mutant

# Size of the first stage: the 40 cheapest tests, of the two files that have most of them.
_CHEAP, _FILES = 40, 2
LONGEST = 120.0
"""Maximum duration in seconds of the tests of one mutant. The cheapest tests are selected first."""
NEARBY = 20.0
"""Maximum duration in seconds of tests that run other lines of the module, but not the mutant's
line."""
_MOST_WITHOUT_TRACE = 0.05
"""Accepted share of tests that run none of the measured packages in their process."""


class CannotMeasure(Exception):
    """Error for a test suite that does not run, so that mutants cannot be tried."""


@attrs.frozen
class Selection:
    """Tests by the lines that they run.

    ``tests[file][line]`` are the tests that run the line. ``seconds`` are the durations of the
    tests that pass; other tests are not used. ``reach`` is the number of lines that each test runs.
    ``longest`` limits the duration of the tests of one mutant. ``same_wing`` restricts them to the
    tests of the mutant's wing (top-level package).
    """

    tests: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]
    reach: Mapping[str, int] = attrs.field(factory=dict)
    longest: float = LONGEST
    same_wing: bool = False

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the mutant's line, followed by other tests that run its module.

        The other tests are needed for code that runs only once in a process, at import or because
        of a cache. Coverage records such code for the first test only, or for none. Code that runs
        at import or only in child processes can affect all tests of the mutant's wing, so these
        are added.
        """
        lines = self.tests.get(mutant.file, {})
        prefix = f"tests/{wing_of(mutant.file)}/"
        if self.same_wing:
            lines = {
                line: frozenset(test for test in tests if test.startswith(prefix))
                for line, tests in lines.items()
            }
        span = range(mutant.first, mutant.last + 1)
        running = frozenset[str]().union(*(lines.get(line, frozenset()) for line in span))
        others = frozenset[str]().union(*lines.values()) - running
        chosen = self._best(running, self.longest)
        chosen += self._best(others, min(NEARBY, self.longest) if chosen else self.longest)
        if mutant.at_import or not running:
            wing = frozenset(test for test in self.seconds if test.startswith(prefix))
            chosen += self._best(wing.difference(chosen), self.longest - self.expected(chosen))
        return chosen

    def stages(self, tests: list[str]) -> list[list[str]]:
        """Divide the tests into two stages.

        The first stage has cheap tests of few files, which kill most mutants. Only for mutants
        that survive must pytest load the other test files.
        """
        cheap = tests[:_CHEAP]
        files = Counter(test.partition("::")[0] for test in cheap)
        best = {file for file, _ in files.most_common(_FILES)}
        first = [test for test in cheap if test.partition("::")[0] in best]
        rest = [test for test in tests if test not in set(first)]
        return [stage for stage in (first, rest) if stage]

    def expected(self, tests: list[str]) -> float:
        """Return the total duration of these tests in seconds."""
        return sum(self.seconds[test] for test in tests)

    def _best(self, tests: frozenset[str], longest: float) -> list[str]:
        """Return the cheapest tests, followed by tests that run few lines, up to ``longest``
        seconds.

        A slow test that runs few lines probably tests exactly this line. At least one test is
        returned.
        """
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
    """Read the measurement of the tests that ran in the copy ``root`` of the repository.

    Raises CannotMeasure if many tests have no coverage: the data of a worker process may be lost.
    """
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
        raise CannotMeasure(f"coverage has no data for {missing} of {len(seconds)} passed tests")
    return Selection(tests, seconds, reach)


def wing_of(file: str) -> str:
    """Return the wing (top-level package) of a source file, such as "core" for
    devicemanager/core/ledger.py."""
    return file.removeprefix("devicemanager/").partition("/")[0]
