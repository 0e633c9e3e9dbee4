"""Solve random problems with the real allocator and with this project's. Print the differences."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from devicemanager.claims.dra.profile import Profile
from tools.differential.building import CACHE, build
from tools.differential.dra_allocate.problems import Json, problems
from tools.differential.reference import ReferenceError
from tools.differential.versions import minor
from tools.replay.dra_allocate import Problem, replay_problem

_SOURCES: Final = Path(__file__).parent / "go"
RELEASES: Final = ("1.34.4", "1.36.3", "1.37.2")
"""Releases with which to compare."""


@attrs.frozen
class Finding:
    """Problem with different results."""

    problem: Json
    differences: list[str]


@attrs.define
class Tally:
    """Results of the real allocator by kind, and the problems with different results."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    """Number of results: ``fit``, ``no fit``, ``error``, or ``slow`` (it took more than 3 s)."""
    findings: list[Finding] = attrs.field(factory=list)


def compare(release: str, count: int, seed: int, *, jobs: int = 2) -> Tally:
    """Compare ``count`` problems with a release such as ``1.37.2``.

    Raises BuildError, and ReferenceError if the real allocator cannot be run.
    """
    program = program_of(release, jobs=jobs)
    made = list(problems(seed, count, minor(release)))
    tally = Tally()
    for problem, outcome in zip(made, solved(program, made), strict=True):
        kind = _kind(outcome)
        tally.outcomes[kind] += 1
        if kind != "slow":
            differences = _differences(problem, outcome, release)
            if differences:
                tally.findings.append(Finding(problem, differences))
    return tally


def program_of(release: str, *, jobs: int = 2) -> Path:
    """Return the program that solves problems with a release. Raises BuildError."""
    return build(release, jobs=jobs, sources=_SOURCES, cache=CACHE / "dra-allocate")


def solved(program: Path, made: list[Json], *arguments: str) -> Iterator[dict[str, Any]]:
    """Yield the program's results. Raises ReferenceError."""
    with tempfile.TemporaryFile("w+") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in made)
        file.seek(0)
        done = subprocess.run(
            [program, *arguments], stdin=file, capture_output=True, text=True, check=False
        )
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(made):
        raise ReferenceError(f"the allocator stopped: {done.stderr.strip()[-300:]}")
    yield from map(json.loads, lines)


def _kind(outcome: Json) -> str:
    if "results" in outcome:
        return "no fit" if outcome["results"] is None else "fit"
    return next(iter(outcome))


def _differences(problem: Json, outcome: Json, release: str) -> list[str]:
    profile = Profile.of(release.rpartition(".")[0], features=problem["features"])
    return replay_problem(problem["id"], Problem.of(problem), outcome, profile).differences


def run(release: str, count: int, seed: int, shown: int, *, jobs: int) -> bool:
    """Compare and print the result. Return True if all problems agree."""
    begin = time.monotonic()
    tally = compare(release, count, seed, jobs=jobs)
    for finding in tally.findings[:shown]:
        print(f"{release}, problem {finding.problem['id']}: disagreement")
        for text in finding.differences:
            print("  " + text.replace("\n", "\n  "))
        print(f"  {json.dumps(finding.problem)}")
    slow = tally.outcomes["slow"]
    agreed = count - slow - len(tally.findings)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(tally.outcomes.items()))
    print(
        f"{release}: {agreed} of {count - slow} problems agree"
        f" ({kinds}; {time.monotonic() - begin:.0f} s)"
    )
    sys.stdout.flush()
    return not tally.findings
