"""Carries checks out: scenes, lanes, verdicts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import attrs

from devicemanager.conformance.check_run import CheckRun, Stage, Stages
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.limits import Limits
from devicemanager.conformance.model import Check, Verdict
from devicemanager.conformance.outcomes import (
    CheckError,
    Failed,
    Line,
    Outcome,
    Scene,
    Severity,
    Skipped,
    Warned,
)
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.report import Report
from devicemanager.conformance.waivers import Waivers
from devicemanager.core.printable import printable
from devicemanager.kubelet.settings import Settings

__all__ = ["FIRST", "OnVerdict", "OnWait", "run"]

OnVerdict = Callable[[Verdict], object]
"""Called with each verdict as it comes, from any thread, one at a time."""

OnWait = Callable[[str], object]
"""Called with a line now and then while the plugin does not register."""

_TOLD = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR, Outcome.WAIVED)

FIRST = "R01"
"""That the plugin registers: without that, nearly all others could only say so, too."""


def run(
    subject: PluginUnderTest,
    checks: Sequence[Check],
    *,
    limits: Limits | None = None,
    seed: int = 1,
    jobs: int = 4,
    waivers: Waivers | None = None,
    settings: Settings | None = None,
    on_verdict: OnVerdict | None = None,
    reproduce: Callable[[Check], str] | None = None,
    on_wait: OnWait | None = None,
    stages: Stages | None = None,
) -> Report:
    """Carry the checks out on a plugin and report.

    ``jobs`` is how many of the plugin run at a time, each on a kubelet of its own. ``seed``
    decides on random inputs. ``settings`` are those of the kubelets. ``reproduce`` gives the
    command that a verdict shows. Closing ``stages`` on another thread ends all that runs.

    Raises CheckError if the plugin's command cannot be started, or registers nothing and its
    resources are not known.
    """
    runner = _Runner(
        subject,
        limits or Limits(),
        seed,
        waivers or Waivers(()),
        settings or Settings(durability="process"),
        on_verdict or (lambda verdict: None),
        reproduce or (lambda check: f"devicemanager check --only {check.id} --seed {seed} -- …"),
        on_wait,
        stages or Stages(),
    )
    begin = time.monotonic()
    verdicts = runner.run(checks, jobs)
    return Report(
        subject,
        verdicts,
        runner.resources,
        seed,
        runner.settings.kubelet_version,
        time.monotonic() - begin,
    )


@attrs.define
class _Runner:
    subject: PluginUnderTest
    limits: Limits
    seed: int
    waivers: Waivers
    settings: Settings
    on_verdict: OnVerdict
    reproduce: Callable[[Check], str]
    on_wait: OnWait | None
    stages: Stages
    resources: tuple[str, ...] = ()
    _told: threading.Lock = attrs.field(factory=threading.Lock)

    def run(self, checks: Sequence[Check], jobs: int) -> tuple[Verdict, ...]:
        self.resources = self.subject.resources or self._discovered()
        verdicts: list[Verdict] = []
        stage = None
        silent = False
        for first in checks:
            if first.id == FIRST:
                stage = self._stage(self.on_wait)
                with _closed_on_error(stage):
                    verdicts.append(self._verdict(first, stage))
                    silent = not CheckRun(stage, self.resources, "start").has_tried
        failed = any(verdict.outcome is Outcome.FAIL for verdict in verdicts)
        rest = [each for each in checks if each.id != FIRST]
        reasons = {each.id: self._inapplicable(each, failed, silent) for each in rest}
        verdicts += [self._skipped(each, reasons[each.id]) for each in rest if reasons[each.id]]
        rest = [each for each in rest if not reasons[each.id]]
        needing = [each for each in rest if not each.unregistered]
        if stage is None and self.subject.resources and len(needing) > 1:
            # Nothing has shown yet that the plugin registers: one start does, for all of them.
            stage, failure = self._prepared(self.on_wait)
            if failure is not None:
                with _closed_on_error(stage):
                    verdicts += [self._said(each, *failure) for each in needing]
                rest = [each for each in rest if each.unregistered]
        lanes = self._lanes(rest, stage)
        with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="check") as pool:
            for found in pool.map(lambda lane: list(lane()), lanes):
                verdicts += found
        order = {each.id: place for place, each in enumerate(checks)}
        return tuple(sorted(verdicts, key=lambda verdict: order[verdict.check.id]))

    def _lanes(
        self, checks: Sequence[Check], stage: Stage | None
    ) -> Iterator[Callable[[], Iterable[Verdict]]]:
        """What may be carried out side by side. ``stage`` has a plugin for those that share
        one. The idle ones come first: they take longest, and take nothing."""
        if idle := [each for each in checks if each.scene is Scene.IDLE]:
            yield partial(self._idle, idle)
        registered = [each for each in checks if each.scene is Scene.REGISTERED]
        if registered or stage is not None:
            yield partial(self._one_after_another, registered, stage)
        for check in checks:
            if check.scene is Scene.OWN:
                yield partial(self._own, check)

    def _discovered(self) -> tuple[str, ...]:
        """What the plugin registers by itself. Raises CheckError if that is nothing."""
        stage = self._stage(self.on_wait)
        try:
            stage.kubelet.start()
            since = stage.kubelet.mark()
            trial = CheckRun(stage, (), "discovery")
            stage.launch()

            def registered() -> set[str]:
                return {str(each.resource) for each in trial.registrations(since)}

            def done() -> bool:
                return bool(registered()) or trial.has_ended

            trial.until_registered(done, self.limits.start_seconds)
            if not registered():
                raise CheckError(_never_came(trial, self.limits.start_seconds))
            # Those of one plugin come together: no more for a while means all are there.
            known: set[str] = set()
            while len(registered()) > len(known):
                known = registered()
                trial.settle()
            return tuple(sorted(known))
        except Failed as failed:  # of the hook prepare
            raise CheckError(str(failed)) from None
        finally:
            stage.close()

    def _inapplicable(self, check: Check, unregistered: bool, silent: bool) -> str:
        """Why it is skipped without a look at the plugin; empty if it is not. ``silent``: it
        has not even tried to register."""
        if unregistered and not check.unregistered:
            return f"the plugin does not register: see {FIRST}"
        # Those that start it anew; the others look at what the first start has shown.
        if silent and check.family == FIRST[0] and check.scene is Scene.OWN:
            return f"it did not try to register: see {FIRST}"
        missing = [hook for hook in check.hooks if not self.subject.has(hook)]
        return f"needs the hook {' and '.join(missing)}" if missing else ""

    def _skipped(self, check: Check, reason: str) -> Verdict:
        verdict = Verdict(check, Outcome.SKIP, reason)
        self._tell(verdict)
        return verdict

    # -- scenes ------------------------------------------------------------------------

    def _one_after_another(self, checks: Sequence[Check], stage: Stage | None) -> Iterable[Verdict]:
        """On one plugin, which is replaced after a check that it did not pass."""
        try:
            for check in checks:
                if stage is None:
                    stage, failure = self._prepared()
                    if failure is not None and not check.unregistered:
                        stage.close()
                        stage = None
                        yield self._said(check, *failure)
                        continue
                verdict = self._verdict(check, stage)
                yield verdict
                if verdict.outcome not in (Outcome.PASS, Outcome.SKIP):
                    stage.close()
                    stage = None
        finally:
            if stage is not None:
                stage.close()

    def _idle(self, checks: Sequence[Check]) -> Iterable[Verdict]:
        """On one plugin that is left alone first."""
        stage, failure = self._prepared()
        try:
            if failure is not None:
                for check in checks:
                    yield self._said(check, *failure)
                return
            trials = [self._trial(check, stage) for check in checks]
            for trial in trials:
                trial.begin_idle()
            trials[0].settle(self.limits.idle_seconds)
            for check, trial in zip(checks, trials, strict=True):
                yield self._judged(check, trial)
        finally:
            stage.close()

    def _own(self, check: Check) -> Iterable[Verdict]:
        stage = self._stage()
        try:
            yield self._verdict(check, stage)
        finally:
            stage.close()

    def _stage(self, on_wait: OnWait | None = None) -> Stage:
        return self.stages.open(lambda: Stage(self.subject, self.limits, self.settings, on_wait))

    def _prepared(
        self, on_wait: OnWait | None = None
    ) -> tuple[Stage, tuple[Outcome, str, CheckRun] | None]:
        """A stage with a registered plugin, or what kept it from coming up."""
        stage = self._stage(on_wait)
        trial = CheckRun(stage, self.resources, "start")
        try:
            trial.start()
        except (Failed, Warned) as failed:
            return stage, (Outcome.FAIL, str(failed), trial)
        except Exception as error:
            return stage, (Outcome.ERROR, f"{type(error).__name__}: {error}", trial)
        return stage, None

    def _check_there(self) -> None:
        """Start the plugin as it is meant to be. Raises CheckError if there is no such
        command."""
        stage, _ = self._prepared()
        try:
            trial = CheckRun(stage, self.resources, "start")
            if trial.could_not_start:
                raise CheckError(_never_came(trial, self.limits.start_seconds))
        finally:
            stage.close()

    # -- verdicts ----------------------------------------------------------------------

    def _trial(self, check: Check, stage: Stage) -> CheckRun:
        return CheckRun(stage, self.resources, f"{self.seed} {check.id}")

    def _verdict(self, check: Check, stage: Stage) -> Verdict:
        return self._judged(check, self._trial(check, stage))

    def _judged(self, check: Check, trial: CheckRun) -> Verdict:
        begin = time.monotonic()
        try:
            outcome, seen = Outcome.PASS, check.run(trial) or ""
        except Failed as failed:
            outcome, seen = _failure(check), str(failed)
        except Warned as warned:
            outcome, seen = Outcome.WARN, str(warned)
        except Skipped as skipped:
            outcome, seen = Outcome.SKIP, str(skipped)
        except CallFailed as failed:
            outcome, seen = _failure(check), f"a call that should succeed: {failed}"
        except Exception as error:
            outcome, seen = Outcome.ERROR, f"{type(error).__name__}: {error}"
        return self._said(check, outcome, seen, trial, time.monotonic() - begin)

    def _said(
        self, check: Check, outcome: Outcome, seen: str, trial: CheckRun, seconds: float = 0.0
    ) -> Verdict:
        """The verdict, which is told. Raises CheckError if there is no such command."""
        if trial.could_not_start:  # or the check has broken what the command needs
            self._check_there()
        if outcome in (Outcome.FAIL, Outcome.WARN):
            outcome, seen = self.waivers.applied(check.id, outcome, seen)
        timeline: tuple[Line, ...] = ()
        output: tuple[str, ...] = ()
        if outcome in _TOLD:
            timeline, output = trial.timeline(), trial.output()
        verdict = Verdict(
            check, outcome, printable(seen), seconds, timeline, output, self.reproduce(check)
        )
        self._tell(verdict)
        return verdict

    def _tell(self, verdict: Verdict) -> None:
        with self._told:
            self.on_verdict(verdict)


@contextlib.contextmanager
def _closed_on_error(stage: Stage) -> Iterator[None]:
    """A stage that goes on to others, unless something is raised before."""
    try:
        yield
    except BaseException:
        stage.close()
        raise


def _failure(check: Check) -> Outcome:
    """SHOULD and MUST fail; what is only reported never does."""
    return Outcome.WARN if check.severity is Severity.INFO else Outcome.FAIL


def _never_came(trial: CheckRun, seconds: float) -> str:
    said = printable("; ".join(trial.process.output()[-3:])) or "nothing"
    rejected = trial.registrations(code=None)
    if rejected:
        return f"the kubelet rejected the plugin: {rejected[-1].message}. It printed: {said}"
    if not trial.process.is_running:
        return f"the plugin ended before it registered: {trial.exit_text()}. It printed: {said}"
    return (
        f"the plugin did not register within {seconds:g} s (limit start_seconds): {trial.silence}. "
        f"It printed: {said}"
    )
