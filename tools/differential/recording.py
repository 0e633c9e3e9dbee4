"""Store scenarios with the reference's results, to compare without Go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tools.differential import ours
from tools.differential.comparing import Disagreement, Expected, compare
from tools.replay.report import read_vectors

MOST_BYTES: Final = 4000
"""Longest line to record, to keep the file in the repository small."""


@attrs.frozen
class Recorded:
    """Line of a file."""

    version: str
    scenario: Mapping[str, Any]
    expected: Expected


def line(version: str, scenario: Mapping[str, Any], wanted: Expected) -> str:
    """Return a JSON object with ``kubelet``, ``scenario`` and ``expect``.

    ``expect`` has ``config_error``, or per step the ``facts`` and the paths of ``random`` ones.
    """
    expect: dict[str, Any] = {"config_error": wanted.config_error}
    if wanted.config_error is None:
        expect = {
            "steps": [
                {"facts": facts, "random": sorted(random)}
                for facts, random in zip(wanted.steps, wanted.random, strict=True)
            ]
        }
    return json.dumps(
        {"kubelet": version, "scenario": scenario, "expect": expect}, separators=(",", ":")
    )


def read(path: Path) -> Iterator[Recorded]:
    """Yield all lines. Raises ReplayError if the file has a different format."""
    for vector in read_vectors(path):
        expect = vector["expect"]
        steps = expect.get("steps", ())
        yield Recorded(
            vector["kubelet"],
            vector["scenario"],
            Expected(
                expect.get("config_error"),
                [step["facts"] for step in steps],
                [frozenset(step["random"]) for step in steps],
            ),
        )


def differences(recorded: Recorded) -> list[Disagreement]:
    """Play the scenario in the mock and return unexplained disagreements."""
    played = ours.play(recorded.scenario, recorded.version)
    found = compare(recorded.scenario, recorded.version, recorded.expected, played)
    return [each for each in found if each.deviation is None]
