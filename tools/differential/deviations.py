"""Intended differences from the reference: the only ones that a comparison accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from tools.differential.versions import minor

Scenario = Mapping[str, Any]


@attrs.frozen
class Fact:
    """Fact in which both differ."""

    scenario: Scenario
    version: str
    step: int
    path: str
    expected: Any
    actual: Any


@attrs.frozen
class Deviation:
    """Intended difference with its reason."""

    name: str
    reason: str
    covers: Callable[[Fact], bool] = attrs.field(repr=False)


def steps_of(scenario: Scenario) -> list[Mapping[str, Any]]:
    """Return the steps of a scenario, then an admission for each of its pods."""
    return [*scenario.get("steps", ()), *({"admit": pod} for pod in scenario.get("pods", ()))]


def named(fact: Fact) -> Deviation | None:
    """Return the deviation that explains a difference, or None."""
    return next((each for each in DEVIATIONS if each.covers(fact)), None)


def _is_reported_with_the_gate_off(fact: Fact) -> bool:
    if fact.path != "health updates" or fact.expected:
        return False
    on = minor(fact.version) >= 36
    return not (fact.scenario.get("feature_gates") or {}).get("ResourceHealthStatus", on)


DEVIATIONS: Final[tuple[Deviation, ...]] = (
    Deviation(
        "health updates without the gate",
        "`MockKubelet.health_updates` is there without the gate ResourceHealthStatus, too",
        _is_reported_with_the_gate_off,
    ),
)
