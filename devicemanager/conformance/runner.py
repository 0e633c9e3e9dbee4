"""Run checks on a plugin and collect their verdicts.

Theory of operation. A run takes four steps.

1. *Resources.* Checks need the names of the plugin's resources. If the user has not named them,
   start the plugin once and read what it registers. If it registers nothing, raise CheckError.
2. *First start.* R01, the check of registration, runs first. If it fails, all checks that need a
   registered plugin would wait and fail for the same reason, so they are skipped. If R01 is not
   selected, the plugin is started once; if it does not register, all checks that need a registered
   plugin fail.
3. *Lanes.* The remaining checks are distributed to lanes, which run in parallel (``jobs``). One
   lane has the checks of scene IDLE, on a shared stage that has been idle for some time. One lane
   has the checks of scene REGISTERED, which run one after another on the stage of step 2. Each
   check of scene OWN has a separate lane and stage.
4. *Verdicts.* The exception that a check raises decides the outcome (``_run_check``). Then waivers
   are applied, and a failure or warning gets the timeline.

Two cases need care:

* After a failure on a shared stage, the plugin may be broken. The next check gets a new stage, so
  that one fault does not look like many.
* The plugin's command may not exist. Some checks expect that the plugin exits, and exit status 127
  would satisfy them. Therefore, after exit status 127, the plugin is started normally. If it exits
  with 127 again, the run ends with an error (``_check_command``).
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
"""Callback that gets each verdict as soon as it is known. Calls come from any thread, but never
concurrently."""

FIRST = "R01"
"""ID of the check of registration. Most other checks are pointless if it fails."""

_WITH_TIMELINE = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR, Outcome.WAIVED)

_Failure: TypeAlias = tuple[Outcome, str, CheckRun]
"""Failed start of the plugin: outcome, text and run."""


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

    Up to ``jobs`` instances of the plugin run in parallel, each on a separate mock kubelet.
    ``seed`` determines random inputs. ``settings`` are the settings of the mock kubelets.
    ``reproduce`` returns the command that repeats a check, for its verdict. To end the run early,
    close ``stages`` on another thread.

    Raises CheckError if the plugin's command does not exist. Also raises it if ``plugin`` names no
    resources and the plugin registers none.
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
            # Neither R01 nor discovery has shown that the plugin registers. One start shows it for
            # all checks. A single check shows it by itself.
            stage, failure = self._registered_stage(self.on_wait)
            if failure is not None:
                with _closed_on_error(stage):
                    verdicts += [self._verdict(each, *failure) for each in needing]
                rest = [each for each in rest if not each.needs_registration]
        lanes = self._lanes(rest, stage)
        # Threads are enough: checks mostly wait. They also share the lock of `on_verdict`.
        with ThreadPoolExecutor(max(1, jobs), thread_name_prefix="check") as pool:
            for found in pool.map(lambda lane: list(lane()), lanes):
                verdicts += found
        # Verdicts come in any order. The report has them in the order of the checks.
        order = {each.id: place for place, each in enumerate(checks)}
        return tuple(sorted(verdicts, key=lambda verdict: order[verdict.check.id]))

    def _discover_resources(self) -> tuple[str, ...]:
        """Start the plugin once and return the resources that it registers. Raises CheckError if it
        registers none."""
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
        except Failed as failed:  # raised if the hook `prepare` fails
            raise CheckError(str(failed)) from None
        finally:
            stage.close()

    def _why_skipped(self, check: Check, unregistered: bool, silent: bool) -> str:
        """Return the reason to skip a check without running it; empty if the check can run.

        ``unregistered``: R01 has failed. ``silent``: the plugin has not called Register at all.
        """
        if unregistered and check.needs_registration:
            return f"the plugin does not register: see check {FIRST}"
        # Checks of scene OWN would wait again; the others read what R01 has seen.
        if silent and check.family == FIRST[0] and check.scene is Scene.OWN:
            return f"the plugin did not call Register: see check {FIRST}"
        # Checked last: a hook would not help if the plugin does not register.
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
        """Iterate over functions that can run in parallel. Each runs the checks of one lane.

        ``stage`` has a registered plugin for the checks of scene REGISTERED. Idle checks come
        first, because they take longest and need no CPU.
        """
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
                    # The fault that this check has found may break the next check, too.
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
            # All runs begin before the idle time, so that each check sees all of it.
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
        """Start a kubelet and the plugin. Return the stage, and the failure if the plugin does not
        register."""
        stage = self._stage(on_wait)
        run = CheckRun(stage, self.resources, "start")
        try:
            run.start()
        except (Failed, Warned) as failed:
            return stage, (Outcome.FAIL, str(failed), run)
        # For example, there is no disk space for the kubelet's directory. The plugin has not
        # failed.
        except Exception as error:
            return stage, (Outcome.ERROR, f"{type(error).__name__}: {error}", run)
        return stage, None

    def _check_command(self) -> None:
        """Start the plugin normally. Raises CheckError if its command does not exist."""
        stage, _ = self._registered_stage()
        try:
            if stage.plugin.could_not_start:
                raise CheckError(_why_unregistered(CheckRun(stage, self.resources, "start")))
        finally:
            stage.close()

    # -- verdicts ----------------------------------------------------------------------

    def _new_run(self, check: Check, stage: Stage) -> CheckRun:
        # The ID is part of the seed, so that a check gets the same inputs alone and in a full run.
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
        """Create a verdict and pass it to ``on_verdict``. Raises CheckError if the plugin's command
        does not exist."""
        # Test this even if the check passed: the check may have expected an exit.
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
    """Close the stage if the block raises an exception. Otherwise the stage stays open for the next
    checks."""
    try:
        yield
    except BaseException:
        stage.close()
        raise


def _failure(check: Check) -> Outcome:
    return Outcome.WARN if check.severity is Severity.INFO else Outcome.FAIL


def _why_unregistered(run: CheckRun) -> str:
    """Return a text that says why the plugin did not register after its start, with its last
    output."""
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
