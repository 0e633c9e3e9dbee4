"""Where ours differs from the reference on purpose: the only exceptions of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

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
    refused: frozenset[str]
    """Pods that the reference has refused by then."""
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


DEVIATIONS: Final[tuple[Deviation, ...]] = (
    Deviation(
        "refused pods hold nothing",
        "an allocation is all or nothing; the reference keeps what the containers before the "
        "refused one got until the next allocation or List (Q4)",
        lambda fact: fact.is_about(fact.refused),
    ),
    Deviation(
        "ended pods hold nothing",
        "devices are free when a pod ends; the reference frees them at the next allocation or "
        "List, and its checkpoint has them until the next write (Q10)",
        lambda fact: fact.is_about(fact.ended),
    ),
)
