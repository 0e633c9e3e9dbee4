"""Run mutants. Each runs in a copy of the repository, with the tests that run its lines."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import attrs

from tools.mutants.mutations import Mutant
from tools.mutants.selection import CannotMeasure, Selection, read_selection
from tools.mutants.trees import Tree

KILLED, TIMED_OUT, SURVIVED, UNTESTED = "killed", "timed out", "survived", "no test runs it"
MEASURED = "measured"
"""Directory in the cache with the copy of the repository that was measured."""
_NO_TESTS_RAN = 5
_TOO_SLOW = 4.0
"""Time limit of a run with a mutant, as a multiple of the duration without the mutant."""
PATIENCE = 1200.0
"""Time limit of a run without a mutant, in seconds."""
# Disable plugins that slow down the start.
_FLAGS = ("-x", "-rf", "--no-header", "--tb=no", "-p", "no:xdist", "-p", "no:pytest_cov")


@attrs.frozen
class Result:
    """Outcome of one mutant. ``tests`` is the number of tests that were selected for it."""

    mutant: Mutant
    outcome: str
    tests: int

    @property
    def is_killed(self) -> bool:
        return self.outcome in {KILLED, TIMED_OUT}


def select(repository: Path, cache: Path, arguments: Sequence[str]) -> Selection:
    """Run the test suite once to measure which lines each test runs.

    The result is cached in ``cache`` until a source or test changes. ``arguments`` are passed to
    pytest. Raises CannotMeasure if the suite fails.
    """
    tree = Tree(repository, cache / MEASURED)
    version = _digest(tree.path, arguments)
    data, durations = cache / f"coverage-{version}", cache / f"durations-{version}.json"
    if not durations.exists():
        for old in (*cache.glob("coverage-*"), *cache.glob("durations-*")):
            old.unlink()
        environment = {"COVERAGE_FILE": str(data), "MUTANTS_DURATIONS": str(durations)}
        plugin = ["-p", "tools.mutants.durations"]
        contexts = ["--cov", "--cov-context=test", "--cov-report="]
        done = tree.pytest([*plugin, *contexts, *arguments], 3600.0, environment)
        if done is None or not durations.exists() or not data.exists():
            raise CannotMeasure(f"the test suite failed:\n{done.stdout if done else 'timeout'}")
    return read_selection(tree.path, data, durations)


def run(
    repository: Path,
    cache: Path,
    mutants: Sequence[Mutant],
    selection: Selection,
    workers: int,
    on_result: Callable[[Result], None],
) -> list[Result]:
    """Run tests on each mutant and return the results in the order of ``mutants``.

    ``on_result`` is called with each result, on several threads.
    """
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(workers):
        trees.put(Tree(repository, cache / f"tree-{number}"))

    def attempt(mutant: Mutant) -> Result:
        tree = trees.get()
        try:
            result = _attempt(repository, tree, mutant, selection)
        finally:
            trees.put(tree)
        on_result(result)
        return result

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(attempt, mutants))


def _attempt(repository: Path, tree: Tree, mutant: Mutant, selection: Selection) -> Result:
    tests = selection.for_mutant(mutant)
    if not tests:
        return Result(mutant, UNTESTED, 0)
    source = (repository / mutant.file).read_text()
    trial = Trial(tree, mutant.file, source, mutant.applied_to(source))
    outcomes = (
        trial.outcome(stage, selection.expected(stage)) for stage in selection.stages(tests)
    )
    outcome = next((each for each in outcomes if each != SURVIVED), SURVIVED)
    return Result(mutant, outcome, len(tests))


@attrs.frozen
class Trial:
    """Trial of one mutant in a copy of the repository.

    On a busy machine, a test can fail or run late once. The mutant then does not count as killed.
    """

    tree: Tree
    file: str
    original: str
    mutated: str

    def outcome(self, tests: list[str], expected: float) -> str:
        """Run the tests on the mutant and return the outcome. ``expected`` is their duration in
        seconds without the mutant."""
        while tests:
            done = self._run(self.mutated, tests, _TOO_SLOW * expected)
            if done is None:
                took = self._original_takes(tests)
                if took > _TOO_SLOW / 2 * expected:  # The machine is slow, not the mutant.
                    expected = took
                    done = self._run(self.mutated, tests, _TOO_SLOW * expected)
            if done is None:
                return TIMED_OUT
            if done.returncode == 0:
                return SURVIVED
            failed = [test for test in tests if _has_failed(test, done.stdout)]
            if not failed:
                # The mutant prevents the run itself, for example at import.
                self._original_takes(tests)
                return KILLED
            if self._fails(failed, expected):
                return KILLED
            tests = [test for test in tests if test not in failed]
        return SURVIVED

    def _original_takes(self, tests: list[str]) -> float:
        began = time.monotonic()
        done = self._run(self.original, tests, PATIENCE)
        if done is None:
            raise CannotMeasure(f"the tests {tests} exceed the time limit even without the mutant")
        if done.returncode != 0:
            raise CannotMeasure(f"the tests {tests} fail even without the mutant:\n{done.stdout}")
        return time.monotonic() - began

    def _fails(self, tests: list[str], expected: float) -> bool:
        again = self._run(self.mutated, tests, _TOO_SLOW * expected)
        return again is None or again.returncode != 0

    def _run(
        self, source: str, tests: list[str], seconds: float
    ) -> subprocess.CompletedProcess[str] | None:
        self.tree.put(self.file, source)
        try:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
                chosen.write("".join(f"{test}\n" for test in tests))
                chosen.flush()
                done = self.tree.pytest([*_FLAGS, f"@{chosen.name}"], seconds)
        finally:
            self.tree.put(self.file, self.original)
        if done is not None and done.returncode == _NO_TESTS_RAN:
            raise CannotMeasure(f"pytest ran none of the tests {tests}:\n{done.stdout}")
        return done


def _has_failed(test: str, output: str) -> bool:
    return any(
        line.startswith(f"FAILED {test}") and line[len(f"FAILED {test}") :][:3] in {"", " - "}
        for line in output.splitlines()
    )


def _digest(tree: Path, arguments: Sequence[str]) -> str:
    whole = hashlib.sha256(json.dumps([*arguments, os.fspath(tree)]).encode())
    for path in sorted(tree.rglob("*")):
        if path.is_file() and path.suffix in {".py", ".toml", ".json", ".proto"}:
            whole.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()[:12]
