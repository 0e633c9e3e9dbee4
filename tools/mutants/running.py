"""Runs mutants: each in a copy of the repository, with the tests that run its lines."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import attrs

from tools.mutants.mutations import Mutant
from tools.mutants.selection import CannotMeasure, Selection, read_selection
from tools.mutants.trees import Tree

__all__ = [
    "KILLED",
    "SURVIVED",
    "TIMED_OUT",
    "UNTESTED",
    "CannotMeasure",
    "Result",
    "run",
    "select",
]

KILLED, TIMED_OUT, SURVIVED, UNTESTED = "killed", "timed out", "survived", "no test runs it"
_NO_TESTS_RAN = 5
_TOO_SLOW = 4.0
"""How many times as long as without the mutant the tests may take."""


@attrs.frozen
class Result:
    """What became of one mutant; ``tests``: how many were chosen for it."""

    mutant: Mutant
    outcome: str
    tests: int

    @property
    def is_killed(self) -> bool:
        return self.outcome in {KILLED, TIMED_OUT}


def select(repository: Path, cache: Path, arguments: Sequence[str]) -> Selection:
    """Which tests run which lines: one run of the suite, remembered in ``cache`` until a
    source or test changes. ``arguments`` are pytest's. Raises CannotMeasure."""
    tree = Tree(repository, cache / "measured")
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
            raise CannotMeasure(f"the suite does not run:\n{done.stdout if done else 'no end'}")
    return read_selection(tree.path, data, durations)


def run(
    repository: Path,
    cache: Path,
    mutants: Sequence[Mutant],
    selection: Selection,
    workers: int,
    on_result: Callable[[Result], None],
) -> list[Result]:
    """Try each mutant; the results come in the order of ``mutants``, ``on_result`` is called
    as they become known, from several threads."""
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
    tree.put(mutant.file, mutant.applied_to(source))
    try:
        outcomes = (_outcome(tree, stage, selection) for stage in selection.stages(tests))
        outcome = next((each for each in outcomes if each != SURVIVED), SURVIVED)
    finally:
        tree.put(mutant.file, source)
    return Result(mutant, outcome, len(tests))


def _outcome(tree: Tree, tests: list[str], selection: Selection) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write("".join(f"{test}\n" for test in tests))
        chosen.flush()
        patience = _TOO_SLOW * selection.expected(tests)
        done = tree.pytest(["-x", "--no-header", "--tb=no", f"@{chosen.name}"], patience)
    if done is None:
        return TIMED_OUT
    if done.returncode == _NO_TESTS_RAN:
        raise CannotMeasure(f"pytest ran none of {tests}:\n{done.stdout}")
    return SURVIVED if done.returncode == 0 else KILLED


def _digest(tree: Path, arguments: Sequence[str]) -> str:
    whole = hashlib.sha256(json.dumps([*arguments, os.fspath(tree)]).encode())
    for path in sorted(tree.rglob("*")):
        if path.is_file() and path.suffix in {".py", ".toml", ".json", ".proto"}:
            whole.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()[:12]
