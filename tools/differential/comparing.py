"""What the reference always does, and where ours differs from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from tools.differential.deviations import Deviation, Fact, named, steps_of
from tools.differential.facts import Facts, facts_of

__all__ = ["ABSENT", "Disagreement", "Expected", "compare", "expected"]

Scenario = Mapping[str, Any]

ABSENT: Final = "(absent)"
"""The value of a fact that an outcome does not have."""


@attrs.frozen
class Disagreement:
    """A fact of one step that the reference has otherwise, whenever it is asked."""

    step: int
    path: str
    expected: Any
    actual: Any
    deviation: Deviation | None = None
    """Why that is meant so; None is a finding."""

    def text(self) -> str:
        """For people."""
        return f"step {self.step}, {self.path}: the reference {self.expected}, ours {self.actual}"


@attrs.frozen
class Expected:
    """What a reference did in several runs of one scenario."""

    config_error: str | None = None
    steps: Sequence[Facts] = ()
    """The facts of each step that were the same in all runs."""
    random: Sequence[frozenset[str]] = ()
    """The paths of each step that were not."""


def expected(answer: Mapping[str, Any]) -> Expected:
    """The reference's random choices, in the order of Go's maps, show between runs."""
    if answer.get("config_error"):
        return Expected(answer["config_error"])
    runs = [[facts_of(outcome) for outcome in run] for run in answer["runs"]]
    steps, random = [], []
    for outcomes in zip(*runs, strict=True):
        paths = {path for facts in outcomes for path in facts}
        values = {path: [facts.get(path, ABSENT) for facts in outcomes] for path in paths}
        same = {path for path, found in values.items() if all(one == found[0] for one in found)}
        steps.append({path: values[path][0] for path in sorted(same)})
        random.append(frozenset(paths - same))
    return Expected(None, steps, random)


def compare(
    scenario: Scenario, version: str, wanted: Expected, ours: Mapping[str, Any]
) -> list[Disagreement]:
    """Everything in which ours differs."""
    error = ours.get("config_error")
    if error != wanted.config_error:
        return [Disagreement(0, "config error", wanted.config_error, error)]
    if error is not None:
        return []
    rejected, ended = _inactive(scenario, wanted)
    found = []
    for each in _differences(wanted, ours["runs"][0]):
        fact = Fact(
            scenario,
            version,
            each.step,
            each.path,
            each.expected,
            each.actual,
            rejected[each.step],
            ended[each.step],
        )
        found.append(attrs.evolve(each, deviation=named(fact)))
    return found


def _inactive(
    scenario: Scenario, wanted: Expected
) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """The pods rejected and ended by each step."""
    rejected: set[str] = set()
    ended: set[str] = set()
    history = []
    for step, facts in zip(steps_of(scenario), wanted.steps, strict=True):
        if "admit" in step and not facts.get("admit"):
            rejected.add(step["admit"]["uid"])
        for path, admitted in facts.items():
            words = path.split()
            if words[0] == "readmitted" and words[-1] == "admit" and not admitted:
                rejected.add(words[1])
        ended |= {step[kind] for kind in ("finish", "delete") if kind in step}
        history.append((frozenset(rejected), frozenset(ended)))
    return [each for each, _ in history], [each for _, each in history]


def _differences(wanted: Expected, ours: Sequence[Mapping[str, Any]]) -> Iterator[Disagreement]:
    for number, (facts, random) in enumerate(zip(wanted.steps, wanted.random, strict=True)):
        actual = facts_of(ours[number])
        written = any(path.startswith("checkpoint") for path in (*facts, *random))
        for path in sorted((facts.keys() | actual.keys()) - random):
            # The reference did not write: what its file says is of an earlier step.
            if path.startswith("checkpoint") and not written:
                continue
            left, right = facts.get(path, ABSENT), actual.get(path, ABSENT)
            if left != right:
                yield Disagreement(number, path, left, right)
