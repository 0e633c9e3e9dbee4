"""A few scenarios with what the reference did, to be played again where there is no Go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tools.differential import ours
from tools.differential.comparing import Disagreement, Expected, compare
from tools.replay.report import read_vectors

__all__ = ["MOST_BYTES", "differences", "line", "read"]

MOST_BYTES: Final = 4000
"""The longest line that is worth a place in the repository."""


@attrs.frozen
class Recorded:
    """One line of a file."""

    version: str
    scenario: Mapping[str, Any]
    expected: Expected


def line(version: str, scenario: Mapping[str, Any], wanted: Expected) -> str:
    """As JSON: ``kubelet``, ``scenario``, and ``expect`` with ``config_error`` or, for each
    step, its ``facts`` and the paths of those that were ``random``."""
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
    """Every line. Raises ReplayError if the file is not of this format."""
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
    """What ours does otherwise, and nothing says that it should."""
    played = ours.play(recorded.scenario, recorded.version)
    found = compare(recorded.scenario, recorded.version, recorded.expected, played)
    return [each for each in found if each.deviation is None]
