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
    rejected: frozenset[str]
    """Pods that the reference has rejected so far."""
    ended: frozenset[str]
    """Pods that have finished or were deleted so far."""

    @property
    def kind(self) -> str:
        """First word of the path."""
        return self.path.partition(" ")[0]

    def is_about(self, pods: frozenset[str]) -> bool:
        """True if it is about allocations of these pods or updates of their health."""
        if self.path == "health updates":
            return {*self.expected} > {*self.actual} and {*self.expected} - {*self.actual} <= pods
        words = self.path.split()
        return words[0] in _HOLDINGS and any(uid in words for uid in pods)

    def is_reported_of(self, pods: frozenset[str]) -> bool:
        """True if it is a PodResources response about one of these pods."""
        return self.kind.removesuffix(":") in _REPORTED and any(uid in self.path for uid in pods)


_REPORTED: Final = frozenset({"get", "list", "list_v1alpha1"})
_HOLDINGS: Final = frozenset({"devices", "count", "status", "checkpoint"})


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
        "rejected pods hold nothing",
        "an allocation is all or nothing; the reference keeps what the containers before the "
        "rejected one got until the next allocation or List (Q4)",
        lambda fact: fact.is_about(fact.rejected),
    ),
    Deviation(
        "the pod admitted last counts as active",
        "up to 1.31 the reference frees what it held when it was rejected or ended only once "
        "another pod comes, ours with the next List as well",
        lambda fact: minor(fact.version) <= 31 and fact.is_reported_of(fact.rejected | fact.ended),
    ),
    Deviation(
        "health updates without the gate",
        "`MockKubelet.health_updates` is there without the gate ResourceHealthStatus, too",
        _is_reported_with_the_gate_off,
    ),
    Deviation(
        "ended pods hold nothing",
        "devices are free when a pod ends; the reference frees them at the next allocation or "
        "List, and its checkpoint has them until the next write (Q10)",
        lambda fact: fact.is_about(fact.ended),
    ),
)
