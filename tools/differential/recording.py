"""Store scenarios with reference results, so that tests can compare without Go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tools.differential import ours
from tools.differential.comparing import Disagreement, Expected, Seen, compare
from tools.differential.facts import Facts
from tools.differential.scenarios import Scenario
from tools.replay.report import read_vectors

MOST_BYTES: Final = 12_000
"""Maximum length of a recorded line, to keep the file in the repository small."""
_TIMES: Final = 4
"""Number of recorded scenarios that should reach each name of the coverage."""


@attrs.frozen
class Recorded:
    """A scenario with its reference results: one line of a file."""

    version: str
    scenario: Scenario
    expected: Expected


def line(version: str, scenario: Scenario, wanted: Expected) -> str:
    """Return a JSON object with ``kubelet``, ``scenario`` and ``expect``.

    ``expect`` has ``config_error``, or ``steps`` and perhaps ``panic``. A step has the ``facts``
    that changed since the step before, the paths of facts that are ``gone``, and ``random`` facts
    with the values seen. A random fact has no values if further values are likely.
    """
    expect: dict[str, Any] = {"config_error": wanted.config_error}
    if wanted.config_error is None:
        expect = {"steps": list(_steps(wanted))}
        if wanted.panic is not None:
            expect["panic"] = wanted.panic
    return json.dumps(
        {"kubelet": version, "scenario": scenario, "expect": expect}, separators=(",", ":")
    )


def _steps(wanted: Expected) -> Iterator[dict[str, Any]]:
    before: Facts = {}
    for facts, random in zip(wanted.steps, wanted.random, strict=True):
        changed = {path: value for path, value in facts.items() if _differs(before, path, value)}
        step: dict[str, Any] = {"facts": changed}
        if gone := sorted(before.keys() - facts.keys()):
            step["gone"] = gone
        if random:
            step["random"] = {
                path: list(seen.values) if seen.is_complete else None
                for path, seen in random.items()
            }
        yield step
        before = facts


def _differs(before: Facts, path: str, value: object) -> bool:
    # Compare the JSON texts, because True == 1.
    return path not in before or json.dumps(before[path]) != json.dumps(value)


def read(path: Path) -> Iterator[Recorded]:
    """Yield all lines. Raises ReplayError if the file has a different format."""
    for vector in read_vectors(path):
        expect = vector["expect"]
        steps: list[Facts] = []
        random: list[dict[str, Seen]] = []
        facts: Facts = {}
        for step in expect.get("steps", ()):
            kept = {
                name: value for name, value in facts.items() if name not in step.get("gone", ())
            }
            facts = kept | step["facts"]
            steps.append(facts)
            random.append(
                {
                    name: Seen(values or (), values is not None)
                    for name, values in step.get("random", {}).items()
                }
            )
        wanted = Expected(expect.get("config_error"), steps, random, expect.get("panic"))
        yield Recorded(vector["kubelet"], vector["scenario"], wanted)


def differences(recorded: Recorded) -> list[Disagreement]:
    """Run a recorded scenario in the mock. Return unexplained disagreements."""
    played = ours.play(recorded.scenario, recorded.version)
    found = compare(recorded.scenario, recorded.version, recorded.expected, played)
    return [each for each in found if each.deviation is None]


def selected(
    version: str, agreeing: Sequence[tuple[Scenario, Expected, frozenset[str]]]
) -> Iterator[str]:
    """Yield the lines of a few scenarios that together reach everything several times.

    The choice is greedy: the next scenario is the one that adds the most in relation to its length.
    """
    lines = {number: line(version, *each[:2]) for number, each in enumerate(agreeing)}
    left = {number: each[2] for number, each in enumerate(agreeing)}
    left = {number: each for number, each in left.items() if len(lines[number]) <= MOST_BYTES}
    counts: Counter[str] = Counter()

    def worth(number: int) -> float:
        # A name that few selected scenarios reach counts more.
        new = sum(0.5 ** counts[name] for name in left[number] if counts[name] < _TIMES)
        return new / (2000 + len(lines[number]))

    while left:
        best = max(left, key=worth)
        if not worth(best):
            break
        counts.update(left.pop(best))
        yield lines[best]


__all__ = ["MOST_BYTES", "Recorded", "differences", "line", "read", "selected"]
