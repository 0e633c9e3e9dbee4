"""Access to the parts of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Scenario = Mapping[str, Any]

OBSERVED: Final = frozenset({"lists", "no_hints"})
"""Keys of a step that configure its observation. The remaining key is its kind."""


def steps_of(scenario: Scenario) -> list[Mapping[str, Any]]:
    """Return the steps of a scenario, then an admission for each of its pods."""
    pods = ({"admit": pod, "lists": True} for pod in scenario.get("pods") or ())
    return [*(scenario.get("steps") or ()), *pods]


def kind_of(step: Mapping[str, Any]) -> str:
    """Return the kind of a step."""
    (kind,) = step.keys() - OBSERVED
    return kind


def is_real(scenario: Scenario) -> bool:
    """True if the plugins are programs (``generating.real``)."""
    return any("program" in each for each in (scenario.get("resources") or {}).values())
