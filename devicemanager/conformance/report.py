"""Result of a run: a verdict per check, the causes of failures, and the profile that the plugin has
passed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from devicemanager.conformance.outcomes import Line, Outcome, Profile, Severity
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.registry import Check
from devicemanager.conformance.suite import PLUGINS, Suite
from devicemanager.core.printable import counted

__all__ = ["SCHEMA", "Cause", "Report", "Verdict", "outcome_counts"]

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
    """Observation of the suite, or the reason for a skip.

    For a waived failure, the text includes the waiver's reason.
    """
    seconds: float = 0.0
    timeline: tuple[Line, ...] = ()
    """Steps of the suite, events and calls. Empty for passed and skipped checks."""
    output: tuple[str, ...] = ()
    """The last lines that the plugin printed during the check."""
    reproduce: str = ""
    """Command that runs only this check, with the options of the run."""
    cause: str = ""
    """ID of the failed check because of which this check was skipped; empty for other verdicts."""
    needs: tuple[str, ...] = ()
    """What a skipped check needs and the run lacks, such as ``hook add-device`` or
    ``option --reboot``."""
    symptom: str = ""
    """Symptom of this failure on a node, if it is not the symptom in ``Check.production``;
    otherwise empty."""

    @property
    def production(self) -> str:
        """Symptom on a node whose plugin fails like this."""
        return self.symptom or self.check.production

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
            "production": self.production,
            "links": list(check.links),
            "seconds": round(self.seconds, 3),
            "timeline": [attrs.asdict(line) for line in self.timeline],
            "output": list(self.output),
            "reproduce": self.reproduce,
            "cause": self.cause,
            "needs": list(self.needs),
        }


@attrs.frozen
class Cause:
    """One cause of failures: the failed check that shows the cause best, and the other checks that
    the cause affects."""

    verdict: Verdict
    """The failed check that shows the cause best."""
    effects: tuple[Verdict, ...]
    """The other checks that failed for the same cause."""
    skipped: tuple[Verdict, ...]
    """Checks that were skipped because they would have failed for the same cause."""

    @property
    def severity(self) -> Severity:
        """Highest severity of the failed checks."""
        severities = {each.check.severity for each in (self.verdict, *self.effects)}
        return next(each for each in Severity if each in severities)

    def data(self) -> dict[str, Any]:
        """Return the cause as JSON data, as described in docs/json.md."""
        return {
            "check": self.verdict.check.id,
            "severity": self.severity.value,
            "effects": [each.check.id for each in self.effects],
            "skipped": [each.check.id for each in self.skipped],
        }


def outcome_counts(verdicts: Iterable[Verdict]) -> dict[Outcome, int]:
    """Return the number of verdicts by outcome; outcomes without verdicts are omitted."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


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
    suite: Suite = PLUGINS
    """The suite of the run: the families of checks, and what each profile requires."""
    why_unusable: str = ""
    """Reason why no check can use a device, such as that no device is healthy. Empty if checks can
    use devices."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of verdicts by outcome; outcomes without verdicts are omitted."""
        return outcome_counts(self.verdicts)

    @property
    def summary(self) -> str:
        """Text with counts and duration, such as ``3 passed, 2 failed in 73 s``."""
        counts = ", ".join(f"{count} {_WORDS[outcome]}" for outcome, count in self.counts.items())
        return f"{counts} in {self.seconds:.0f} s"

    @property
    def lacking(self) -> dict[str, list[str]]:
        """Mapping from each missing hook or option, such as ``hook add-device``, to the IDs of the
        checks that were skipped without it."""
        lacking: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            for need in verdict.needs:
                lacking.setdefault(need, []).append(verdict.check.id)
        return lacking

    def of(self, *outcomes: Outcome) -> list[Verdict]:
        """Return the verdicts whose outcome is one of ``outcomes``."""
        return [verdict for verdict in self.verdicts if verdict.outcome in outcomes]

    def by_family(self) -> Iterator[tuple[str, list[Verdict]]]:
        """Iterate over the families, as pairs of title and verdicts. User-defined families come
        last."""
        titles = self.suite.families
        for family in dict.fromkeys([*titles, *(each.check.family for each in self.verdicts)]):
            verdicts = [each for each in self.verdicts if each.check.family == family]
            if verdicts:
                yield titles.get(family, f"Checks {family}"), verdicts

    def failed(self, profile: Profile = Profile.COMPLETE) -> list[Verdict]:
        """Return the verdicts of the checks of ``profile`` whose outcome is FAIL or ERROR."""
        return [each for each in self.of(*_BAD) if each.check.belongs_to(profile)]

    @property
    def causes(self) -> list[Cause]:
        """Causes of the failures, each with the checks that it affects. The most severe cause is
        first."""
        bad = {each.check.id: each for each in self.failed()}
        groups: dict[str, list[Verdict]] = {}
        roots = {id_: _root(id_, bad) for id_ in bad}
        # If a driver refuses several claims with the same error, one check shows it best.
        same: dict[str, str] = {}
        for id_ in sorted(set(roots.values()), key=lambda id_: _place(bad[id_])):
            # The text is empty if the failure is not a rejected claim. Such failures need not have
            # the same cause.
            if reason := _refusal(bad[id_]):
                same.setdefault(reason, id_)
        for id_, verdict in bad.items():
            root = roots[id_]
            # ``same`` has no empty text, so all other failures stay with their own root.
            groups.setdefault(same.get(_refusal(bad[root]), root), []).append(verdict)
        skipped = self.of(Outcome.SKIP)
        causes = [
            Cause(
                bad[root],
                tuple(each for each in group if each.check.id != root),
                tuple(each for each in skipped if _root(each.cause, bad) == root),
            )
            for root, group in groups.items()
        ]
        order = list(Severity)
        return sorted(
            causes,
            key=lambda each: (order.index(each.severity), -len(each.effects + each.skipped)),
        )

    @property
    def profile(self) -> Profile | None:
        """Highest profile that the plugin passes; None if it passes no profile.

        A run with only some of the checks, or with too many skipped checks, passes no profile.
        """
        # A profile includes all earlier ones, so the first failure decides.
        passed = None
        for profile in Profile:  # each includes the one before
            if self.obstacle(profile):
                break
            passed = profile
        return passed

    def obstacle(self, profile: Profile) -> str:
        """Return the reason why the plugin does not pass ``profile``; empty if it passes."""
        failed = self.failed(profile)
        reasons = [
            f"{', '.join(ids)} {what}"
            for outcome, what in ((Outcome.FAIL, "failed"), (Outcome.ERROR, "could not run"))
            if (ids := [each.check.id for each in failed if each.outcome is outcome])
        ]
        if reasons:
            return "; ".join(reasons)
        # Compared with all checks of the suite, not with the verdicts: a run of a few checks must
        # not earn a profile.
        if left_out := len(self._left_out(profile)):
            wanted = sum(each.belongs_to(profile) for each in self.suite.checks())
            return f"checks of {profile.value} that were not selected: {left_out} of {wanted}"
        carried_out = Counter(
            each.check.family
            for each in self.verdicts
            if each.outcome is not Outcome.SKIP and each.check.belongs_to(profile)
        )
        # A plugin for which nearly all checks are skipped has no failures, but nothing was shown
        # either.
        for family, least in self.suite.least[profile].items():
            if carried_out[family] < least:
                reason = (
                    f"too few checks of {self.suite.families[family]} were carried out: "
                    f"{carried_out[family]}, at least {least} needed"
                )
                return f"{self.why_unusable}; {reason}" if self.why_unusable else reason
        return ""

    def without(self, profile: Profile) -> list[Verdict]:
        """Return the verdicts of the checks of ``profile`` that were skipped because the run lacks
        hooks or options."""
        return [each for each in self.verdicts if each.needs and each.check.belongs_to(profile)]

    def _without_text(self, profile: Profile) -> str:
        """Return a text such as ``without 2 MUST checks that need hooks: W06 W07``; empty if no
        check lacks hooks or options."""
        skipped = self.without(profile)
        kinds = {need.partition(" ")[0] for each in skipped for need in each.needs}
        needed = " or ".join(f"{kind}s" for kind in sorted(kinds))
        parts: list[str] = []
        for severity in (Severity.MUST, Severity.SHOULD):
            if ids := [each.check.id for each in skipped if each.check.severity is severity]:
                need = "" if parts else f" that {'needs' if len(ids) == 1 else 'need'} {needed}"
                parts.append(f"{counted(len(ids), f'{severity} check')}{need}: {' '.join(ids)}")
        return f"without {', and '.join(parts)}" if parts else ""

    @property
    def profile_text(self) -> str:
        """Text about the passed profile and the next profile, such as ``profile core passed; not
        resilient: K01 failed``.

        It also names the checks of the passed profile that were skipped because the run lacks hooks
        or options. If the plugin passes no profile, the text has the reason.
        """
        passed = self.profile
        next_one = next(filter(self.obstacle, Profile), None)
        if passed is None:
            return f"no profile passed: {self.obstacle(Profile.CORE)}"
        without = self._without_text(passed)
        text = f"profile {passed.value} passed" + (f", {without}" if without else "")
        return f"{text}; not {next_one.value}: {self.obstacle(next_one)}" if next_one else text

    def exit_status(self, profile: Profile = Profile.COMPLETE) -> int:
        """Return the exit status for a profile. The first case that applies decides:

        1. The suite failed to run a check of the profile: 2.
        2. A check of the profile failed: 1.
        3. All checks of the profile were selected, but the plugin does not pass the lowest profile,
           because too many checks were skipped: 1. Such a run shows almost nothing.
        4. All other cases: 0.
        """
        failed = self.failed(profile)
        if any(each.outcome is Outcome.ERROR for each in failed):
            return 2
        if self._left_out(profile):
            # The user has left out checks on purpose, so the missing profile is not an error.
            return 1 if failed else 0
        # Not for higher profiles: without psutil, the checks of resources are skipped.
        return 1 if failed or self.obstacle(Profile.CORE) else 0

    def _left_out(self, profile: Profile) -> list[Check]:
        """Return the checks of a profile that were not selected."""
        run = {verdict.check.id for verdict in self.verdicts}
        return [
            each for each in self.suite.checks() if each.belongs_to(profile) and each.id not in run
        ]

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
            "profile_text": self.profile_text,
            "profile_without": [
                each.check.id for each in (self.without(self.profile) if self.profile else ())
            ],
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "causes": [each.data() for each in self.causes],
            "checks": [verdict.data() for verdict in self.verdicts],
        }


_REFUSAL = re.compile(r"NodePrepareResources failed for [^:]*: (.*)", re.DOTALL)
_OF_CLAIM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|claim-\d+-\d+")
"""UIDs, and names that the suite gives to claims."""


def _refusal(verdict: Verdict) -> str:
    """Return the error with which a driver rejects a claim, without the claim's name and UID.

    Empty for all other failures.
    """
    found = _REFUSAL.search(verdict.seen)
    return _OF_CLAIM.sub("", found[1]) if found else ""


def _place(verdict: Verdict) -> tuple[int, str]:
    return list(Severity).index(verdict.check.severity), verdict.check.id


def _root(id_: str, bad: Mapping[str, Verdict]) -> str:
    """Return the ID of the failed check that shows the cause of a failure best."""
    if id_ in bad:
        for cause in bad[id_].check.effect_of:
            if cause in bad and not _differ(bad[id_], bad[cause]):
                # The other failure can itself be an effect: the report shows the end of the chain.
                return _root(cause, bad)
    return id_


def _differ(one: Verdict, other: Verdict) -> bool:
    """True if the two failures have different symptoms of their own, so different causes."""
    return bool(one.symptom and other.symptom) and one.symptom != other.symptom
