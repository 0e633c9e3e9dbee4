"""Compare the mock's results with the reference's.

The iteration order of Go's maps is random, so the reference runs each scenario several times. A
fact with the same value in all runs must have this value in the mock. A random fact must have one
of the values seen, if enough runs have shown all values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from tools.differential.deviations import Deviation, Fact, named
from tools.differential.facts import Facts, facts_of
from tools.differential.quirk_deviations import RULES, Rule, Step
from tools.differential.scenarios import Scenario

ABSENT: Final = "(absent)"
"""Value of a fact that a result lacks."""


@attrs.frozen
class Disagreement:
    """Fact of a step with another value in the mock than in any run of the reference."""

    step: int
    path: str
    expected: Any
    actual: Any
    is_random: bool = False
    """True if ``expected`` contains several values: all values seen in the reference."""
    deviation: Deviation | None = None
    """Deviation that explains the disagreement; None for a finding."""

    def explained(self, deviation: Deviation | None) -> Disagreement:
        """Return the disagreement with the deviation that explains it, if any."""
        return attrs.evolve(self, deviation=deviation)

    def text(self) -> str:
        """Describe the disagreement in one line."""
        what = f"one of {self.expected}" if self.is_random else self.expected
        return f"step {self.step}, {self.path}: the reference {what}, ours {self.actual}"


@attrs.frozen
class Seen:
    """Values of a random fact in the reference's runs."""

    values: Sequence[Any]
    is_complete: bool
    """True if each value was seen at least twice. Then further values are unlikely."""


@attrs.frozen
class Expected:
    """Results of the reference's runs of one scenario. A panic ends a run."""

    config_error: str | None = None
    steps: Sequence[Facts] = ()
    """Constant facts by step: those with the same value in all runs."""
    random: Sequence[Mapping[str, Seen]] = ()
    """Random facts by step."""
    panic: str | None = None
    """Message of the panic with which all runs ended after these steps; empty without a panic."""

    @property
    def is_open(self) -> bool:
        """True if a random fact may have values that were not seen."""
        return any(not seen.is_complete for step in self.random for seen in step.values())


FactsOf = Callable[[Mapping[str, Any]], Facts]
"""Function that divides the result of a step into facts."""


def expected(answer: Mapping[str, Any], facts_of: FactsOf = facts_of) -> Expected:
    """Divide the reference's results into constant and random facts."""
    if answer.get("config_error"):
        return Expected(answer["config_error"])
    runs = [[facts_of(outcome) for outcome in run["steps"] or ()] for run in answer["runs"]]
    steps: list[Facts] = []
    random: list[dict[str, Seen]] = []
    # Not strict: random choices can decide at which step the reference panics.
    for outcomes in zip(*runs, strict=False):
        paths = {path for facts in outcomes for path in facts}
        values = {path: [facts.get(path, ABSENT) for facts in outcomes] for path in paths}
        same = {path for path, found in values.items() if all(one == found[0] for one in found)}
        steps.append({path: values[path][0] for path in sorted(same)})
        random.append({path: _seen(values[path]) for path in sorted(paths - same)})
    # Random choices can decide if the reference panics.
    ends = {(len(run["steps"] or ()), run.get("panic")) for run in answer["runs"]}
    (_, panic), is_certain = min(ends, key=lambda end: end[0]), len(ends) == 1
    return Expected(None, steps, random, panic if is_certain else None)


def _seen(values: Sequence[Any]) -> Seen:
    counts = Counter(json.dumps(value, sort_keys=True) for value in values)
    return Seen([json.loads(each) for each in sorted(counts)], min(counts.values()) > 1)


def compare(
    scenario: Scenario,
    version: str,
    wanted: Expected,
    ours: Mapping[str, Any],
    quirks: str = "reference",
) -> list[Disagreement]:
    """Return all disagreements, each with the deviation that explains it, if any.

    With the quirks ``default``, the rules of ``quirk_deviations`` can explain a disagreement, too.
    A rule can say that the mock is now in another state. Then later steps are not compared.
    """
    error = ours.get("config_error")
    if error != wanted.config_error:
        return [Disagreement(0, "config error", wanted.config_error, error)]
    if error is not None:
        return []
    found: list[Disagreement] = []
    run = ours["runs"][0]
    differing = differences(wanted, run)
    if quirks != "reference":
        differing = [each for each in differing if each.path != "panic"]
    devices = [_devices(*each) for each in zip(wanted.steps, wanted.random, strict=True)]
    for each in differing:
        fact = Fact(
            scenario, version, each.step, each.path, each.expected, each.actual,
            devices, each.is_random,
        )  # fmt: skip
        found.append(each.explained(named(fact)))
    return found if quirks == "reference" else _with_rules(scenario, wanted, ours, found)


def _with_rules(
    scenario: Scenario, wanted: Expected, ours: Mapping[str, Any], found: Sequence[Disagreement]
) -> list[Disagreement]:
    mine = [facts_of(outcome) for outcome in ours["runs"][0]["steps"]]
    explained: list[Disagreement] = []
    for number in range(min(len(wanted.steps), len(mine))):
        step = Step(scenario, number, wanted.steps[: number + 1], mine[: number + 1])
        differing = [each for each in found if each.step == number]
        rules = [_rule(step, each) for each in differing]
        parts = any(rule is not None and rule.parts for rule in rules)
        for each, rule in zip(differing, rules, strict=True):
            if rule is not None:
                deviation = Deviation(rule.name, rule.reason, lambda _: True)
                explained.append(attrs.evolve(each, deviation=deviation))
            elif not parts or each.deviation is not None:
                explained.append(each)
        if parts:
            break
    return explained


def _rule(step: Step, each: Disagreement) -> Rule | None:
    # The mock's value stands for every value that a random choice can lead to.
    values = each.expected if each.is_random else [each.expected]
    for rule in RULES:
        if any(rule.allows(step, each.path, value, each.actual) for value in values):
            return rule
    return None


def _panics(wanted: Expected, run: Mapping[str, Any]) -> Iterator[Disagreement]:
    count, panic = len(run["steps"]), run.get("panic")
    if wanted.panic is not None and (panic is None or wanted.panic not in panic):
        yield Disagreement(len(wanted.steps), "panic", wanted.panic, panic)
    elif panic is not None and count < len(wanted.steps):
        yield Disagreement(count, "panic", None, panic)


def _devices(facts: Facts, random: Mapping[str, Seen]) -> dict[str, set[str]]:
    """Return the devices that each pod can have after a step, in any run."""
    found: dict[str, set[str]] = {}
    values = [(path, [ids]) for path, ids in facts.items()]
    values += [(path, list(seen.values)) for path, seen in random.items()]
    for path, lists in values:
        if path.startswith("devices "):
            uid = path.split(" ")[1]
            found.setdefault(uid, set()).update(*(ids for ids in lists if ids != ABSENT))
    return found


def differences(
    wanted: Expected, run: Mapping[str, Any], facts_of: FactsOf = facts_of
) -> list[Disagreement]:
    """Return all disagreements with a run of the mock, explained or not."""
    return [*_differences(wanted, run["steps"], facts_of), *_panics(wanted, run)]


def _differences(
    wanted: Expected, ours: Sequence[Mapping[str, Any]], facts_of: FactsOf
) -> Iterator[Disagreement]:
    for number, (facts, random) in enumerate(zip(wanted.steps, wanted.random, strict=True)):
        if number >= len(ours):
            return  # after a panic
        # Convert to JSON and back, like recorded values.
        actual = json.loads(json.dumps(facts_of(ours[number])))
        for path in sorted(facts.keys() | actual.keys() | random.keys()):
            value = actual.get(path, ABSENT)
            if path not in random:
                left = facts.get(path, ABSENT)
                if left != value:
                    yield Disagreement(number, path, left, value)
            elif random[path].is_complete and value not in random[path].values:
                yield Disagreement(number, path, random[path].values, value, is_random=True)
