"""What a run has found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from devicemanager.conformance.model import Verdict
from devicemanager.conformance.outcomes import Outcome, Profile
from devicemanager.conformance.plugin_under_test import PluginUnderTest

__all__ = ["SCHEMA", "Report"]

SCHEMA = "devicemanager.check/v1"

_BAD = (Outcome.FAIL, Outcome.ERROR)


@attrs.frozen
class Report:
    """All verdicts of a run, in the order of the checks."""

    subject: PluginUnderTest
    verdicts: tuple[Verdict, ...]
    resources: tuple[str, ...]
    """What the plugin registered."""
    seed: int
    kubelet_version: str
    seconds: float

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many verdicts there are of each outcome; without those of none."""
        found = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome if found[outcome]}

    def of(self, *outcomes: Outcome) -> list[Verdict]:
        """The verdicts with one of these outcomes."""
        return [verdict for verdict in self.verdicts if verdict.outcome in outcomes]

    def failed(self, profile: Profile = Profile.COMPLETE) -> list[Verdict]:
        """What keeps the plugin from a profile: failures, and checks that the suite itself
        could not carry out."""
        return [each for each in self.of(*_BAD) if each.check.belongs_to(profile)]

    @property
    def profile(self) -> Profile | None:
        """The highest profile the checks of which all passed, or do not apply; None: not even
        core. It speaks of the checks of this run only."""
        passed = [profile for profile in Profile if not self.failed(profile)]
        for profile in reversed(Profile):
            if all(each in passed for each in list(Profile)[: list(Profile).index(profile) + 1]):
                return profile
        return None

    def exit_status(self, profile: Profile = Profile.COMPLETE) -> int:
        """0: passed. 1: a check of the profile failed. 2: the suite could not carry one out."""
        failed = self.failed(profile)
        if any(each.outcome is Outcome.ERROR for each in failed):
            return 2
        return 1 if failed else 0

    def data(self) -> dict[str, Any]:
        """As plain data for JSON; its shape stands in docs/json.md."""
        return {
            "schema": SCHEMA,
            "plugin": list(self.subject.command),
            "resources": list(self.resources),
            "kubelet_version": self.kubelet_version,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "profile": None if self.profile is None else self.profile.value,
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "checks": [verdict.data() for verdict in self.verdicts],
        }
