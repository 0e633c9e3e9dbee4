"""Where ours differs from the reference on purpose: the only exceptions of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from tools.differential.versions import minor

__all__ = ["DEVIATIONS", "Deviation", "Fact", "named", "steps_of"]

Scenario = Mapping[str, Any]


@attrs.frozen
class Fact:
    """One fact in which both differ."""

    scenario: Scenario
    version: str
    step: int
    path: str
    expected: Any
    actual: Any
    rejected: frozenset[str]
    """Pods that the reference has rejected by then."""
    ended: frozenset[str]
    """Pods that have finished or were deleted by then."""

    @property
    def kind(self) -> str:
        """The first word of the path."""
        return self.path.partition(" ")[0]

    def is_about(self, pods: frozenset[str]) -> bool:
        """Whether it is what one of these pods holds, or that its health is reported."""
        if self.path == "health updates":
            return {*self.expected} > {*self.actual} and {*self.expected} - {*self.actual} <= pods
        words = self.path.split()
        return words[0] in _HOLDINGS and any(uid in words for uid in pods)

    def is_told_of(self, pods: frozenset[str]) -> bool:
        """Whether PodResources tells it of one of these pods."""
        return self.kind.removesuffix(":") in _TOLD and any(uid in self.path for uid in pods)


_TOLD: Final = frozenset({"get", "list", "list_v1alpha1"})
_HOLDINGS: Final = frozenset({"devices", "count", "status", "checkpoint"})


@attrs.frozen
class Deviation:
    """A difference that is meant, and why."""

    name: str
    reason: str
    covers: Callable[[Fact], bool] = attrs.field(repr=False)


def steps_of(scenario: Scenario) -> list[Mapping[str, Any]]:
    """What happens in a scenario: its steps, then its pods one after another."""
    return [*scenario.get("steps", ()), *({"admit": pod} for pod in scenario.get("pods", ()))]


def named(fact: Fact) -> Deviation | None:
    """The deviation that explains a difference, if there is one."""
    return next((each for each in DEVIATIONS if each.covers(fact)), None)


def _is_told_with_the_gate_off(fact: Fact) -> bool:
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
        lambda fact: minor(fact.version) <= 31 and fact.is_told_of(fact.rejected | fact.ended),
    ),
    Deviation(
        "health updates without the gate",
        "`MockKubelet.health_updates` is there without the gate ResourceHealthStatus, too",
        _is_told_with_the_gate_off,
    ),
    Deviation(
        "ended pods hold nothing",
        "devices are free when a pod ends; the reference frees them at the next allocation or "
        "List, and its checkpoint has them until the next write (Q10)",
        lambda fact: fact.is_about(fact.ended),
    ),
)
