"""The result of a run: a verdict per check, and what they amount to."""

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
    """What was seen; the reason for a skip; for a waived failure also the waiver's reason."""
    seconds: float = 0.0
    timeline: tuple[Line, ...] = ()
    """Steps of the suite, events and calls; only for failures, warnings and errors."""
    output: tuple[str, ...] = ()
    """The plugin's last lines of output during the check."""
    reproduce: str = ""
    """Command that runs only this check, with the same options."""

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON, as described in docs/json.md."""
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
    """All verdicts of a run, in the order of the checks."""

    plugin: PluginUnderTest
    verdicts: tuple[Verdict, ...]
    resources: tuple[str, ...]
    """Resources that the plugin registered."""
    seed: int
    kubelet_version: str
    seconds: float

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of verdicts by outcome; outcomes without verdicts are omitted."""
        counts = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def summary(self) -> str:
        """Counts and duration for people, such as ``3 passed, 2 failed in 73 s``."""
        counts = ", ".join(f"{count} {_WORDS[outcome]}" for outcome, count in self.counts.items())
        return f"{counts} in {self.seconds:.0f} s"

    def of(self, *outcomes: Outcome) -> list[Verdict]:
        """Return the verdicts with one of these outcomes."""
        return [verdict for verdict in self.verdicts if verdict.outcome in outcomes]

    def by_family(self) -> Iterator[tuple[str, list[Verdict]]]:
        """Iterate over headings and verdicts of the families, your own ones last."""
        letters = dict.fromkeys([*FAMILIES, *(each.check.family for each in self.verdicts)])
        for letter in letters:
            verdicts = [each for each in self.verdicts if each.check.family == letter]
            if verdicts:
                yield FAMILIES.get(letter, f"Checks {letter}"), verdicts

    def failed(self, profile: Profile = Profile.COMPLETE) -> list[Verdict]:
        """Return the verdicts that the plugin misses the profile for: failures, and checks that
        the suite could not run."""
        return [each for each in self.of(*_BAD) if each.check.belongs_to(profile)]

    @property
    def profile(self) -> Profile | None:
        """Highest profile without a failed check; None if there is none. Only the checks of this
        run count."""
        # A profile needs all earlier ones, so the first failure decides.
        passed = None
        for profile in Profile:  # each includes the one before
            if self.failed(profile):
                break
            passed = profile
        return passed

    def exit_status(self, profile: Profile = Profile.COMPLETE) -> int:
        """Return 0 if the profile is passed, 1 if a check of it failed, 2 if the suite could not
        run one."""
        failed = self.failed(profile)
        if any(each.outcome is Outcome.ERROR for each in failed):
            return 2
        return 1 if failed else 0

    def data(self) -> dict[str, Any]:
        """Return plain data for JSON, as described in docs/json.md."""
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
