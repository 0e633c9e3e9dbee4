"""Result of a run: a verdict per check, and the profile that the plugin has passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from devicemanager.conformance.outcomes import Line, Outcome, Profile
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.registry import FAMILIES, Check

__all__ = ["SCHEMA", "Report", "Verdict"]

SCHEMA = "devicemanager.check/v1"

_BAD = (Outcome.FAIL, Outcome.ERROR)
_WORDS = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.WARN: "with a warning",
    Outcome.SKIP: "skipped",
    Outcome.WAIVED: "waived",
    Outcome.ERROR: "could not run",
}


@attrs.frozen
class Verdict:
    """Result of one check, with everything needed to understand it."""

    check: Check
    outcome: Outcome
    seen: str = ""
    """What the suite saw, or the reason for a skip. For a waived failure, the text includes the
    waiver's reason."""
    seconds: float = 0.0
    timeline: tuple[Line, ...] = ()
    """Steps of the suite, events and calls. Empty for passed and skipped checks."""
    output: tuple[str, ...] = ()
    """The last lines that the plugin printed during the check."""
    reproduce: str = ""
    """Command that runs only this check, with the options of the run."""

    def data(self) -> dict[str, Any]:
        """Return the verdict as JSON data, as described in docs/json.md."""
        check = self.check
        return {
            "id": check.id,
            "severity": check.severity.value,
            "title": check.title,
            "outcome": self.outcome.value,
            "seen": self.seen,
            "does": check.does,
            "expects": check.expects,
            "production": check.production,
            "links": list(check.links),
            "seconds": round(self.seconds, 3),
            "timeline": [attrs.asdict(line) for line in self.timeline],
            "output": list(self.output),
            "reproduce": self.reproduce,
        }


@attrs.frozen
class Report:
    """Result of a run: all verdicts, in the order of the checks."""

    plugin: PluginUnderTest
    verdicts: tuple[Verdict, ...]
    resources: tuple[str, ...]
    """Names of the plugin's resources."""
    seed: int
    kubelet_version: str
    seconds: float

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of verdicts by outcome, without outcomes that no verdict has."""
        counts = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def summary(self) -> str:
        """Text with counts and duration, such as ``3 passed, 2 failed in 73 s``."""
        counts = ", ".join(f"{count} {_WORDS[outcome]}" for outcome, count in self.counts.items())
        return f"{counts} in {self.seconds:.0f} s"

    def of(self, *outcomes: Outcome) -> list[Verdict]:
        """Return the verdicts that have one of these outcomes."""
        return [verdict for verdict in self.verdicts if verdict.outcome in outcomes]

    def by_family(self) -> Iterator[tuple[str, list[Verdict]]]:
        """Iterate over the families, as pairs of title and verdicts. User-defined families come
        last."""
        letters = dict.fromkeys([*FAMILIES, *(each.check.family for each in self.verdicts)])
        for letter in letters:
            verdicts = [each for each in self.verdicts if each.check.family == letter]
            if verdicts:
                yield FAMILIES.get(letter, f"Checks {letter}"), verdicts

    def failed(self, profile: Profile = Profile.COMPLETE) -> list[Verdict]:
        """Return the verdicts because of which the plugin does not pass the profile.

        These are failures, and checks that the suite failed to run.
        """
        return [each for each in self.of(*_BAD) if each.check.belongs_to(profile)]

    @property
    def profile(self) -> Profile | None:
        """Highest profile that the plugin passes with the checks of this run; None if it passes
        none."""
        # A profile includes all earlier ones, so the first failure decides.
        passed = None
        for profile in Profile:  # each includes the one before
            if self.failed(profile):
                break
            passed = profile
        return passed

    def exit_status(self, profile: Profile = Profile.COMPLETE) -> int:
        """Return 0 if the plugin passes the profile. Return 2 if the suite failed to run a check of
        the profile, otherwise 1."""
        failed = self.failed(profile)
        if any(each.outcome is Outcome.ERROR for each in failed):
            return 2
        return 1 if failed else 0

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data, as described in docs/json.md."""
        return {
            "schema": SCHEMA,
            "plugin": list(self.plugin.command),
            "resources": list(self.resources),
            "kubelet_version": self.kubelet_version,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "profile": None if self.profile is None else self.profile.value,
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "checks": [verdict.data() for verdict in self.verdicts],
        }
