"""Allocation problems agree with the real allocator, and wrong results are noticed."""

from __future__ import annotations

import copy
import json

import pytest

from devicemanager.claims.dra import Profile
from tests.paths import SAMPLE, VECTOR_SETS
from tools.replay.__main__ import main
from tools.replay.dra_allocate import Problem, replay_file, replay_problem
from tools.replay.report import ReplayError

NAME = "dra-allocate.jsonl"
PROBLEMS = [json.loads(line) for line in (SAMPLE / NAME).read_text().splitlines()]


@pytest.mark.parametrize("version", ["1.37", "1.36"])
@pytest.mark.parametrize("vectors", VECTOR_SETS)
def test_recorded_problems_agree(vectors, version):
    outcomes = list(replay_file(vectors / NAME, version))
    assert len(outcomes) > 50
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


def changes(outcome):
    """Yield wrong outcomes: each has one changed value."""
    if "error" in outcome:
        yield {"error": outcome["error"] + "."}
        yield {"results": None}
    elif outcome["results"] is None:
        yield {"results": []}
    else:
        for number, result in enumerate(outcome["results"]):
            for name in result:
                changed = copy.deepcopy(outcome)
                changed["results"][number][name] = {}
                yield changed


def test_a_wrong_expectation_is_found():
    count = 0
    for problem in PROBLEMS:
        profile = Profile.of("1.36", features=problem["features"])
        for wrong in changes(problem["expect"]):
            if wrong != problem["expect"]:
                count += 1
                assert replay_problem("x", Problem.of(problem), wrong, profile).differences
    assert count > 80


def test_the_command_reports_agreement(capsys):
    assert main(["dra-allocate", str(SAMPLE / NAME)]) == 0
    assert capsys.readouterr().out == f"{len(PROBLEMS)} of {len(PROBLEMS)} agree\n"


@pytest.mark.parametrize("line", ['{"id": "x"}', '{"id": "x", "expect": {}, "features": ["Y"]}'])
def test_another_format_is_refused(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(line)
    with pytest.raises(ReplayError, match="vector x cannot be replayed"):
        list(replay_file(path, "1.37"))
