"""Choose tests for a mutant from one run of the suite with coverage contexts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs
import coverage

from tools.mutants.mutations import Mutant

# First stage: the cheap tests of the files that have most of them.
_CHEAP, _FILES = 40, 2
LONGEST = 120.0
"""Maximum duration of the tests of one mutant; the cheapest tests come first."""
NEARBY = 20.0
"""Maximum duration of tests that run other lines of the module, but not the mutant's."""
_MOST_WITHOUT_TRACE = 0.05
"""Share of tests that may run none of the measured packages in their process."""


class CannotMeasure(Exception):
    """The suite does not run, so mutants cannot be judged."""


@attrs.frozen
class Selection:
    """Tests by the lines that they run.

    ``tests[file][line]`` are the tests that run the line, ``seconds`` the durations of the
    tests that pass (others are not used), ``reach`` the number of lines each test runs.
    ``longest`` limits the tests of a mutant; ``same_wing`` restricts them to its wing.
    """

    tests: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]
    reach: Mapping[str, int] = attrs.field(factory=dict)
    longest: float = LONGEST
    same_wing: bool = False

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line, then others that run its module.

        The others are needed because code that runs once in a process (at import or behind
        a cache) is recorded for the first test only, or for none.
        """
        lines = self.tests.get(mutant.file, {})
        if self.same_wing:
            prefix = f"tests/{wing_of(mutant.file)}/"
            lines = {
                line: frozenset(test for test in tests if test.startswith(prefix))
                for line, tests in lines.items()
            }
        span = range(mutant.first, mutant.last + 1)
        running = frozenset[str]().union(*(lines.get(line, frozenset()) for line in span))
        others = frozenset[str]().union(*lines.values()) - running
        chosen = self._best(running, self.longest)
        return chosen + self._best(others, min(NEARBY, self.longest) if chosen else self.longest)

    def stages(self, tests: list[str]) -> list[list[str]]:
        """Divide the tests into two stages.

        The first has cheap tests of few files. It kills most mutants, and only the survivors
        need to load all the other test files.
        """
        cheap = tests[:_CHEAP]
        files = Counter(test.partition("::")[0] for test in cheap)
        best = {file for file, _ in files.most_common(_FILES)}
        first = [test for test in cheap if test.partition("::")[0] in best]
        rest = [test for test in tests if test not in set(first)]
        return [stage for stage in (first, rest) if stage]

    def expected(self, tests: list[str]) -> float:
        """Return the duration of these tests in seconds."""
        return sum(self.seconds[test] for test in tests)

    def _best(self, tests: frozenset[str], longest: float) -> list[str]:
        """Return the cheapest tests, then those that run few lines, within ``longest`` seconds.

        An expensive test that runs few lines is probably about this line. Return at least
        one test.
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
    """Read the measurement of the tests that ran in the tree ``root``.

    Raise CannotMeasure if coverage lacks many tests: the data of a worker may be lost.
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
    """Return the wing of a source file: "core" for devicemanager/core/ledger.py."""
    return file.removeprefix("devicemanager/").partition("/")[0]
