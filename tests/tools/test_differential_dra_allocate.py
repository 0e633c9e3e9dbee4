"""Random allocation problems: reproducible, of many kinds, and differences are noticed."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tools.differential.dra_allocate import running
from tools.differential.dra_allocate.problems import problems
from tools.differential.reference import ReferenceError
from tools.replay.dra_allocate import Problem


def outcome(problem, release="1.37.2"):
    from devicemanager.claims.dra import Profile

    profile = Profile.of(release.rpartition(".")[0], features=problem["features"])
    return Problem.of(problem).solve(profile)


def test_a_seed_gives_the_same_problems():
    assert list(problems(3, 5, 37)) == list(problems(3, 5, 37))
    assert list(problems(3, 5, 37)) != list(problems(4, 5, 37))


@pytest.mark.parametrize("minor", [34, 36, 37])
def test_problems_have_outcomes_of_each_kind(minor):
    kinds = Counter(running._kind(outcome(each, f"1.{minor}.0")) for each in problems(1, 60, minor))
    assert kinds.keys() >= {"fit", "no fit", "error"}
    assert kinds["fit"] > 5


@pytest.fixture
def reference(monkeypatch, tmp_path):
    """A program in place of the real allocator; it answers with what the test sets."""
    answers = tmp_path / "answers"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat {answers}\n")
    program.chmod(0o755)
    monkeypatch.setattr(running, "program_of", lambda release, jobs: program)
    return lambda values: answers.write_text("".join(f"{json.dumps(v)}\n" for v in values))


def test_differences_are_findings(reference, capsys):
    right = [outcome(each) for each in problems(1, 8, 37)]
    reference(right)
    assert running.run("1.37.2", 8, 1, 5, jobs=1)
    wrong = [{"results": []}, {"slow": True}, *right[2:]]
    reference(wrong)
    assert not running.run("1.37.2", 8, 1, 5, jobs=1)
    output = capsys.readouterr().out
    assert "1.37.2: 8 of 8 problems agree" in output
    assert "1.37.2, problem 1-0: disagreement" in output
    assert "1.37.2: 6 of 7 problems agree" in output


def test_a_reference_that_stops_is_an_error(reference):
    reference([])
    with pytest.raises(ReferenceError, match="the allocator stopped"):
        running.run("1.37.2", 8, 1, 5, jobs=1)
