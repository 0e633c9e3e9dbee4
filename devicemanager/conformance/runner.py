"""Run checks on a plugin and collect their verdicts.

Theory of operation. A run takes four steps.

1. *Resources.* Checks need to know what the plugin registers. If the user has not named the
   resources, start the plugin once and see what it registers. Without any, nothing can be
   checked: that is a CheckError.
2. *One start decides for all.* R01, registration, runs first. If it fails, all checks that need a
   registered plugin could only wait again and fail for the same reason, so they are skipped.
   Without R01 a plain start decides instead; if that fails, so do all of these checks.
3. *Lanes.* What is left is distributed to lanes, which run in parallel (``jobs``). Checks of
   scene IDLE share a stage that is left alone. Checks of scene REGISTERED run one after another
   on a shared stage, the one of step 2. Each check of scene OWN has a stage, and a lane, of its
   own.
4. *Verdicts.* The exception that a check raises decides (``_run_check``); waivers are applied,
   and a bad verdict gets the timeline.

Two cases need care:

* After a bad verdict on a shared stage, the plugin may be broken. The next check gets a new
  stage, so that one fault does not look like many.
* The command may not exist. Some checks expect that the plugin exits, and would take exit status
  127 for a good answer. So before any verdict on a plugin that exited so, the plugin is started
  as it should be, and the run ends if it exits with 127 again (``_check_command``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

import attrs

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.limits import Limits
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
from devicemanager.conformance.registry import Check
from devicemanager.conformance.report import Report, Verdict
from devicemanager.conformance.stage import OnWait, Stage, Stages
from devicemanager.conformance.waivers import Waivers
from devicemanager.core.printable import printable
from devicemanager.kubelet.settings import Settings

__all__ = ["FIRST", "OnVerdict", "run"]

OnVerdict = Callable[[Verdict], object]
"""Called with each verdict as soon as it is known, from any thread, one at a time."""

FIRST = "R01"
"""The check of registration, without which most others are pointless."""

_WITH_TIMELINE = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR, Outcome.WAIVED)

_Failure: TypeAlias = tuple[Outcome, str, CheckRun]
"""Outcome, text and run of a start that failed."""


def run(
    plugin: PluginUnderTest,
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
    """Run the checks on a plugin and return the report.

    Up to ``jobs`` instances of the plugin run in parallel, each on a kubelet of its own.
    ``seed`` determines random inputs. ``settings`` are those of the kubelets. ``reproduce``
    returns the command that a verdict shows. Close ``stages`` on another thread to end the run.

    Raises CheckError if the plugin's command does not exist, or if its resources are not named
    and it registers none.
    """
    runner = _Runner(
        plugin,
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
        plugin,
        verdicts,
        runner.resources,
        seed,
        runner.settings.kubelet_version,
        time.monotonic() - begin,
    )


@attrs.define
class _Runner:
    plugin: PluginUnderTest
    limits: Limits
    seed: int
    waivers: Waivers
    settings: Settings
    on_verdict: OnVerdict
    reproduce: Callable[[Check], str]
    on_wait: OnWait | None
    stages: Stages
    resources: tuple[str, ...] = ()
    _publishing: threading.Lock = attrs.field(factory=threading.Lock)

    def run(self, checks: Sequence[Check], jobs: int) -> tuple[Verdict, ...]:
        self.resources = self.plugin.resources or self._discover_resources()
        verdicts: list[Verdict] = []
        stage = None
        # The stage of R01 is shared with later checks, so it is closed only on an exception.
        is_silent = False
        for first in checks:
            if first.id == FIRST:
                stage = self._stage(self.on_wait)
                with _closed_on_error(stage):
                    verdicts.append(self._run_check(first, self._new_run(first, stage)))
                    run = CheckRun(stage, self.resources, "start")
                    is_silent = not run.observed.has_tried_to_register
        failed = any(verdict.outcome is Outcome.FAIL for verdict in verdicts)
        rest = [each for each in checks if each.id != FIRST]
        reasons = {each.id: self._why_skipped(each, failed, is_silent) for each in rest}
        verdicts += [self._skipped(each, reasons[each.id]) for each in rest if reasons[each.id]]
        rest = [each for each in rest if not reasons[each.id]]
        needing = [each for each in rest if each.needs_registration]
        if stage is None and self.plugin.resources and len(needing) > 1:
            # Discovery would have shown it, and a single check shows it itself.
            # Nothing has shown yet that the plugin registers: one start does, for all of them.
            stage, failure = self._registered_stage(self.on_wait)
            if failure is not None:
                with _closed_on_error(stage):
                    verdicts += [self._verdict(each, *failure) for each in needing]
                rest = [each for each in rest if not each.needs_registration]
        lanes = self._lanes(rest, stage)
        # Threads, not processes: checks mostly wait, and share the lock of `on_verdict`.
        with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="check") as pool:
            for found in pool.map(lambda lane: list(lane()), lanes):
                verdicts += found
        # Verdicts come in any order; the report has the order of the checks.
        order = {each.id: place for place, each in enumerate(checks)}
        return tuple(sorted(verdicts, key=lambda verdict: order[verdict.check.id]))

    def _discover_resources(self) -> tuple[str, ...]:
        """Return what the plugin registers without being restarted. Raises CheckError if that is
        nothing."""
        stage = self._stage(self.on_wait)
        try:
            stage.kubelet.start()
            since = stage.kubelet.mark()
            run = CheckRun(stage, (), "discovery")
            stage.plugin.launch()

            def registered() -> set[str]:
                return {str(each.resource) for each in run.observed.registrations(since)}

            def is_done() -> bool:
                return bool(registered()) or stage.plugin.has_exited

            run.until_registered(is_done, self.limits.start_seconds)
            if not registered():
                raise CheckError(_why_unregistered(run))
            # A plugin registers its resources one after another: wait until no more come.
            known: set[str] = set()
            while len(registered()) > len(known):
                known = registered()
                run.settle()
            return tuple(sorted(known))
        except Failed as failed:  # of the hook prepare
            raise CheckError(str(failed)) from None
        finally:
            stage.close()

    def _why_skipped(self, check: Check, unregistered: bool, silent: bool) -> str:
        """Return why to skip a check without running it; empty if it applies. ``silent``: the
        plugin has not even tried to register."""
        if unregistered and check.needs_registration:
            return f"the plugin does not register: see {FIRST}"
        # Those with a stage of their own would wait again; the others read what R01 has seen.
        if silent and check.family == FIRST[0] and check.scene is Scene.OWN:
            return f"it did not try to register: see {FIRST}"
        # After the reasons above: with a plugin that does not register, hooks would not help.
        missing = [hook for hook in check.hooks if not self.plugin.has(hook)]
        return f"needs the hook {' and '.join(missing)}" if missing else ""

    def _skipped(self, check: Check, reason: str) -> Verdict:
        verdict = Verdict(check, Outcome.SKIP, reason)
        self._publish(verdict)
        return verdict

    # -- lanes -------------------------------------------------------------------------

    def _lanes(
        self, checks: Sequence[Check], stage: Stage | None
    ) -> Iterator[Callable[[], Iterable[Verdict]]]:
        """Iterate over what can run in parallel. ``stage`` has a registered plugin to share.
        Idle checks are first because they take longest and need no CPU."""
        if idle := [each for each in checks if each.scene is Scene.IDLE]:
            yield partial(self._run_idle, idle)
        registered = [each for each in checks if each.scene is Scene.REGISTERED]
        if registered or stage is not None:
            yield partial(self._run_one_after_another, registered, stage)
        for check in checks:
            if check.scene is Scene.OWN:
                yield partial(self._run_alone, check)

    def _run_one_after_another(
        self, checks: Sequence[Check], stage: Stage | None
    ) -> Iterable[Verdict]:
        try:
            for check in checks:
                if stage is None:
                    stage, failure = self._registered_stage()
                    if failure is not None and check.needs_registration:
                        stage.close()
                        stage = None
                        yield self._verdict(check, *failure)
                        continue
                verdict = self._run_check(check, self._new_run(check, stage))
                yield verdict
                if verdict.outcome not in (Outcome.PASS, Outcome.SKIP):
                    # What this check has found may break the next one, too.
                    stage.close()
                    stage = None
        finally:
            if stage is not None:
                stage.close()

    def _run_idle(self, checks: Sequence[Check]) -> Iterable[Verdict]:
        stage, failure = self._registered_stage()
        try:
            if failure is not None:
                for check in checks:
                    yield self._verdict(check, *failure)
                return
            # All begin before the idle time, so that each sees all of it.
            runs = [self._new_run(check, stage) for check in checks]
            stage.plugin.begin_idle()
            runs[0].settle(self.limits.idle_seconds)
            for check, run in zip(checks, runs, strict=True):
                yield self._run_check(check, run)
        finally:
            stage.close()

    def _run_alone(self, check: Check) -> Iterable[Verdict]:
        stage = self._stage()
        try:
            yield self._run_check(check, self._new_run(check, stage))
        finally:
            stage.close()

    # -- stages ------------------------------------------------------------------------

    def _stage(self, on_wait: OnWait | None = None) -> Stage:
        return self.stages.open(lambda: Stage(self.plugin, self.limits, self.settings, on_wait))

    def _registered_stage(self, on_wait: OnWait | None = None) -> tuple[Stage, _Failure | None]:
        """Return a stage with a registered plugin, or one with the failure of its start."""
        stage = self._stage(on_wait)
        run = CheckRun(stage, self.resources, "start")
        try:
            run.start()
        except (Failed, Warned) as failed:
            return stage, (Outcome.FAIL, str(failed), run)
        # For example, no space for the kubelet's directory: not the plugin's fault.
        except Exception as error:
            return stage, (Outcome.ERROR, f"{type(error).__name__}: {error}", run)
        return stage, None

    def _check_command(self) -> None:
        """Start the plugin as it should be. Raises CheckError if its command does not exist."""
        stage, _ = self._registered_stage()
        try:
            if stage.plugin.could_not_start:
                raise CheckError(_why_unregistered(CheckRun(stage, self.resources, "start")))
        finally:
            stage.close()

    # -- verdicts ----------------------------------------------------------------------

    def _new_run(self, check: Check, stage: Stage) -> CheckRun:
        # The ID is part of the seed, so that a check alone gets the same inputs as among others.
        return CheckRun(stage, self.resources, f"{self.seed} {check.id}")

    def _run_check(self, check: Check, run: CheckRun) -> Verdict:
        begin = time.monotonic()
        try:
            outcome, seen = Outcome.PASS, check.run(run) or ""
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
        return self._verdict(check, outcome, seen, run, time.monotonic() - begin)

    def _verdict(
        self, check: Check, outcome: Outcome, seen: str, run: CheckRun, seconds: float = 0.0
    ) -> Verdict:
        """Make and publish a verdict. Raises CheckError if the plugin's command does not exist."""
        # Even after a good verdict: the check may have expected an exit.
        if run.plugin.could_not_start:
            self._check_command()
        if outcome in (Outcome.FAIL, Outcome.WARN):
            outcome, seen = self.waivers.applied(check.id, outcome, seen)
        timeline: tuple[Line, ...] = ()
        output: tuple[str, ...] = ()
        if outcome in _WITH_TIMELINE:
            timeline, output = run.timeline.lines(), run.timeline.output()
        verdict = Verdict(
            check, outcome, printable(seen), seconds, timeline, output, self.reproduce(check)
        )
        self._publish(verdict)
        return verdict

    def _publish(self, verdict: Verdict) -> None:
        with self._publishing:
            self.on_verdict(verdict)


@contextlib.contextmanager
def _closed_on_error(stage: Stage) -> Iterator[None]:
    """Close a stage if the block raises; otherwise it is shared with the next checks."""
    try:
        yield
    except BaseException:
        stage.close()
        raise


def _failure(check: Check) -> Outcome:
    return Outcome.WARN if check.severity is Severity.INFO else Outcome.FAIL


def _why_unregistered(run: CheckRun) -> str:
    """Return why the plugin has no registration after its start, with its output."""
    printed = printable("; ".join(run.process.output()[-3:])) or "nothing"
    rejected = run.observed.registrations(code=None)
    # The most specific reason first.
    if rejected:
        return f"the kubelet rejected the plugin: {rejected[-1].message}. It printed: {printed}"
    if not run.process.is_running:
        return (
            f"the plugin exited before it registered: {run.plugin.exit_text()}. "
            f"It printed: {printed}"
        )
    return (
        f"the plugin did not register within {run.limits.start_seconds:g} s "
        f"(limit start_seconds): {run.silence}. It printed: {printed}"
    )
