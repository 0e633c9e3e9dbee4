"""Run checks on a plugin and collect their verdicts.

Theory of operation. A run takes four steps.

1. *Resources.* Checks need the names of the plugin's resources, and how many devices they have. If
   the user has not named the resources, start the plugin once and read what it registers. If it
   registers nothing, raise CheckError.
2. *First start.* R01, the check of registration, runs first. If R01 fails, all checks that need a
   registered plugin are skipped, because they would wait and fail for the same reason. If R01 is
   not selected, the plugin is started once without a check. If the plugin does not register, the
   first check that needs registration fails, and the others are skipped.
3. *Lanes.* The remaining checks are distributed to lanes, which run in parallel (``jobs``). One
   lane has the checks of scene IDLE, on a shared stage that has been idle for some time. One lane
   has the checks of scene REGISTERED, which run one after another on the stage of step 2. Each
   check of scene OWN has a separate lane and stage. A hook may change declared directories of
   hardware, which all instances of the plugin share. Checks that use such a hook run last, one at a
   time (``_last``). If ``prepare`` or ``cleanup`` may change these directories, all lanes run one
   at a time.
4. *Verdicts.* The exception that a check raises determines the outcome (``_judge``). Then waivers
   are applied, and a failure or warning gets the timeline.

Some cases need care:

* If a check fails, later checks may fail for the same reason (``Check.repeats``). They wait for its
  verdict, and are skipped after a failure. Lanes are ordered so that a check begins before the
  checks that wait for its verdict. A lane that need not wait begins before a lane that must wait.
* A check may need a step that another check verifies, such as a device list that shows a broken
  device (``Check.assumes``). If possible, the other check begins first, but nothing waits for its
  verdict. If the step has already failed in the other check, this check is skipped at the step.
* If a hook fails, one check has an error. Other checks that use the hook are skipped.
* A check may fail or be unable to run because of a problem that another check reports (``cause`` of
  Failed and Skipped). The runner publishes such a verdict at the end, when the verdict of the other
  check is known. ``with_cause`` decides whether the text names the other check.
* On a shared stage, a plugin may be broken by an earlier check. A check that fails there is run
  again on a new stage, and only that result counts. After a failure, the next check gets a new
  stage, too.
* On the shared stage of scene REGISTERED, no check stops the plugin. If the plugin exits there, the
  check fails, even if its function returns normally (``_judge_one``).
* The plugin's command may not exist. Some checks expect that the plugin exits, and exit status 127
  would satisfy them. Therefore, after exit status 127, the plugin is started normally. If it exits
  with 127 again, the run ends with an error (``_check_command``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import (
    CheckError,
    Failed,
    HookFailed,
    Line,
    Lost,
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
from devicemanager.conformance.suite import PLUGINS, Suite
from devicemanager.conformance.suite_run import NOTHING, SuiteRun
from devicemanager.conformance.waivers import Waivers
from devicemanager.core.printable import printable
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.processes import ProcessEnded

__all__ = ["OnVerdict", "run", "why_unregistered"]

OnVerdict = Callable[[Verdict], object]
"""Callback that gets each verdict as soon as it is known. Calls come from any thread, but never
concurrently."""


@attrs.frozen
class _Result:
    """Observations from a check or from a start of the plugin. The time is in seconds."""

    outcome: Outcome
    seen: str
    run: SuiteRun
    seconds: float = 0.0
    is_lost: bool = False
    """True if the plugin did not register."""
    crash: str = ""
    """How the plugin exited, such as ``exit status 1``; empty if it did not exit or if the check
    passed or was skipped."""
    timeline: tuple[Line, ...] = ()
    output: tuple[str, ...] = ()
    cause: str = ""
    """ID of another check that may fail because of the same problem (``Failed.cause``,
    ``Skipped.cause``); empty if the check has named none."""
    symptom: str = ""


_BAD = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR)


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
    suite: Suite = PLUGINS,
) -> Report:
    """Run the checks on a plugin and return the report.

    Up to ``jobs`` instances of the plugin run in parallel, each on a separate mock kubelet.
    ``seed`` determines random inputs. ``settings`` are the settings of the mock kubelets.
    ``reproduce`` takes a check and returns the command that repeats it. A verdict contains this
    command. To end the run early, close ``stages`` on another thread. If ``plugin`` is a
    ``DriverUnderTest``, ``suite`` must be ``drivers.DRIVERS``.

    Raises CheckError if the plugin's command does not exist. Also raises it if ``plugin`` names no
    resources and the plugin registers none. Also raises it if the user has declared a directory in
    place of ``/sys``, and this directory has no valid list of NUMA nodes.
    """
    # Drivers need no NUMA nodes: no check of drivers reads them.
    # For plugins, read them before the start, so that an invalid directory ends the run at once.
    if suite is PLUGINS and plugin.hardware.declares_numa:
        plugin.hardware.numa_nodes()
    runner = _Runner(
        plugin,
        limits or Limits(),
        seed,
        waivers or Waivers(()),
        # The suite's kubelets need not survive a power failure. Without the flush of the checkpoint
        # to the disk, an admission takes much less time.
        settings or Settings(durability="process"),
        on_verdict or (lambda verdict: None),
        reproduce or (lambda check: f"devicemanager check --only {check.id} --seed {seed} -- …"),
        on_wait,
        stages or Stages(),
        suite,
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
        suite,
        runner.why_unusable,
    )


@attrs.frozen(eq=False)
class Lane:
    """Checks that run one after another, and the function that runs them."""

    checks: Sequence[Check]
    run: Callable[[], Iterable[Verdict]]


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
    suite: Suite
    resources: tuple[str, ...] = ()
    why_unusable: str = ""
    """Why the plugin had no usable device after its first start; empty if it had one."""
    _device_counts: dict[str, int] = attrs.field(factory=dict)
    """Number of devices by resource. Empty while it is not known."""
    _causes: dict[str, str] = attrs.field(factory=dict)
    """ID of the check that shows the cause, by ID of a check that failed or was skipped."""
    _supposed: dict[str, str] = attrs.field(factory=dict)
    """ID of the check that may report the cause, by ID of a check whose verdict is not published
    yet."""
    _failed_hooks: dict[str, str] = attrs.field(factory=dict)
    """ID of the check whose error reports that a hook has failed, by name of the hook."""
    _decided: dict[str, threading.Event] = attrs.field(factory=dict)
    """An event for each check, by ID of the check. The event is set when the check has ended or was
    skipped. A check waits for the events of the checks in its ``repeats`` (``_cause``)."""
    _disproved: set[str] = attrs.field(factory=set)
    """See ``SuiteRun.disproved``."""
    _publishing: threading.Lock = attrs.field(factory=threading.Lock)

    def run(self, checks: Sequence[Check], jobs: int) -> tuple[Verdict, ...]:
        self.resources = self.plugin.resources or self._discover_resources()
        self._decided = {each.id: threading.Event() for each in checks}
        verdicts: list[Verdict] = []
        stage = None
        # The stage of R01 is shared with later checks, so it is closed only on an exception.
        is_silent = False
        for first in checks:
            if first.id == self.suite.first:
                stage = self._stage(self.on_wait)
                with _closed_on_error(stage):
                    verdicts.append(self._run_check(first, self._new_run(first, stage)))
                    run = self.suite.new_run(stage, self.resources, "start")
                    is_silent = not run.has_tried_to_register
                    if verdicts[0].outcome in (Outcome.PASS, Outcome.WARN):
                        self._learn_devices(run)
        unregistered = "".join(self._unregistered(each) for each in verdicts)
        rest = [each for each in checks if each.id != self.suite.first]
        reasons = {each.id: self._why_skipped(each, unregistered, is_silent) for each in rest}
        for each in rest:
            if reason := reasons[each.id]:
                cause = self.suite.first if reason.endswith(self.suite.first) else ""
                needs = () if cause else self._missing(each)
                verdicts.append(self._skipped(each, reason, cause, needs))
        rest = [each for each in rest if not reasons[each.id]]
        needing = [each for each in rest if each.needs_registration]
        if stage is None and self.plugin.resources and len(needing) > 1:
            # Neither R01 nor discovery has shown yet that the plugin registers. Start it once to
            # find out for all checks. A single check finds out by itself.
            stage, failure = self._registered_stage(self.on_wait)
            if failure is not None:
                with _closed_on_error(stage):
                    verdicts += self._repeated(needing, failure)
                rest = [each for each in rest if not each.needs_registration]
            else:
                with _closed_on_error(stage):
                    self._learn_devices(self.suite.new_run(stage, self.resources, "start"))
        chosen = {each.id for each in rest}
        for id_, decided in self._decided.items():
            # Otherwise a check that repeats one of these would wait forever.
            if id_ not in chosen:
                decided.set()
        if self.plugin.needs_one_instance:
            jobs = 1
        # These run after all others: their hooks would break devices that other lanes test.
        last = self._last(rest)
        others = [each for each in rest if each not in last]
        verdicts += self._in_parallel(list(self._lanes(others, stage, jobs)), jobs)
        verdicts += self._in_parallel(list(self._lanes(last, None, 1)), 1)
        verdicts = self._completed(verdicts)
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
            run = self.suite.new_run(stage, (), "discovery")
            stage.plugin.launch()

            def registered() -> set[str]:
                return run.registered_names(since)

            def is_done() -> bool:
                return bool(registered()) or stage.plugin.has_exited

            run.until_registered(is_done, self.limits.start_seconds)
            if not registered():
                raise CheckError(why_unregistered(run))
            # A plugin registers its resources one after another: wait until no more come.
            known: set[str] = set()
            while len(registered()) > len(known):
                known = registered()
                run.settle()
            run.resources = self.resources = tuple(sorted(known))
            # Check R01 reports a plugin that sends no list.
            with contextlib.suppress(Failed):
                self._learn_devices(run)
            return self.resources
        finally:
            stage.close()

    def _learn_devices(self, run: SuiteRun) -> None:
        """Wait for the devices of a plugin that has registered, and count them. Move resources
        with devices to the beginning of ``resources``."""
        run.wait_devices()
        if not self._device_counts:
            counts = dict(run.device_counts())
            # A check uses the first resource by default, so this resource should have devices.
            self.resources = tuple(sorted(self.resources, key=lambda name: not counts[name]))
            self._device_counts = counts
        self.why_unusable = printable(run.why_unusable())

    def _why_skipped(self, check: Check, unregistered: str, silent: bool) -> str:
        """Return the reason to skip a check without running it; empty if the check can run.

        ``unregistered`` is the reason to skip checks that need a registered plugin, if R01 has
        failed; otherwise empty. ``silent`` is True if the plugin has not tried to register.
        """
        if unregistered and check.needs_registration:
            return unregistered
        # Checks of scene OWN would wait again; the others read what R01 has seen.
        if silent and check.family == self.suite.registration and check.scene is Scene.OWN:
            return f"the {self.plugin.kind} did not try to register: see check {self.suite.first}"
        # Checked last: a hook would not help if the plugin does not register.
        missing = self._missing(check)
        return f"needs the {' and the '.join(missing)}" if missing else ""

    def _missing(self, check: Check) -> tuple[str, ...]:
        """Return the hooks and options that the check requires and the run lacks."""
        hooks = [f"hook {hook}" for hook in check.hooks if not self.plugin.has(hook)]
        options = [f"option --{name}" for name in check.options if not self.plugin.has_option(name)]
        return (*hooks, *options)

    def _skipped(
        self, check: Check, reason: str, cause: str = "", needs: tuple[str, ...] = ()
    ) -> Verdict:
        """Create a verdict for a check that was not run. ``cause`` is the ID of the check that has
        failed instead, if there is one. ``needs`` are the hooks and options that the run lacks."""
        verdict = Verdict(check, Outcome.SKIP, reason, cause=cause, needs=needs)
        if cause:
            self._causes[check.id] = cause
        if check.id in self._decided:
            self._decided[check.id].set()
        self._publish(verdict)
        return verdict

    def _unregistered(self, verdict: Verdict) -> str:
        """Return the reason to skip later checks that need a registration, if the verdict is that
        the plugin does not register or cannot be started; otherwise empty."""
        match verdict.outcome:
            case Outcome.FAIL:
                problem = "does not register"
            case Outcome.ERROR:
                problem = "could not be started"
            case _:
                return ""
        return f"the {self.plugin.kind} {problem}: see check {verdict.check.id}"

    def _repeated(self, checks: Sequence[Check], failure: _Result) -> list[Verdict]:
        """Create verdicts for checks whose plugin did not register: one failure, and skipped checks
        that refer to it."""
        first, *others = checks
        # A waiver is for one check. It must not hide the failure of all.
        verdict = self._verdict(first, failure)
        reason = self._unregistered(verdict)
        if not reason:
            return [verdict, *(self._verdict(each, failure) for each in others)]
        return [verdict, *(self._skipped(each, reason, first.id) for each in others)]

    def _cause(self, check: Check) -> str:
        """Wait for the checks whose failure ``check`` may repeat. Return the ID of the check that
        is the cause if one of them has failed; otherwise empty. If a hook of ``check`` has failed
        in another check, that check is the cause."""
        for hook in check.hooks:
            if hook in self._failed_hooks:
                return self._failed_hooks[hook]
        # These waits end: lanes are taken in an order in which the other check has begun, and
        # checks of ``_last`` are in no ``repeats``.
        for id_ in check.repeats:
            if id_ in self._decided:
                self._decided[id_].wait()
                if id_ in self._causes:
                    return self._causes[id_]
        return ""

    # -- lanes -------------------------------------------------------------------------

    def _last(self, checks: Sequence[Check]) -> list[Check]:
        """Return the checks that run after all others and one at a time, because their hooks change
        hardware that all instances share. No other check waits for their verdicts."""
        hooks = [hook for hook in self.plugin.hooks if self.plugin.changes_shared(hook)]
        return [each for each in checks if any(map(each.may_use, hooks))]

    def _in_parallel(self, lanes: list[Lane], jobs: int) -> list[Verdict]:
        """Run lanes, up to ``jobs`` at a time, and return their verdicts."""
        taking = threading.Lock()

        def take() -> Lane | None:
            # Finding a lane and removing it must be one step, or two workers could take the same
            # one.
            with taking:
                return take_lane(lanes, self._is_decided) if lanes else None

        def work(_worker: int) -> list[Verdict]:
            found: list[Verdict] = []
            while (lane := take()) is not None:
                found += lane.run()
            return found

        # Threads are enough: checks mostly wait. They also share the lock of `on_verdict`.
        workers = max(1, jobs)
        with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
            return [verdict for found in pool.map(work, range(workers)) for verdict in found]

    def _lanes(self, checks: Sequence[Check], stage: Stage | None, jobs: int) -> Iterator[Lane]:
        """Iterate over the lanes, which can run in parallel.

        ``stage`` has a registered plugin for the checks of scene REGISTERED. Idle checks come
        first, because they take longest and need no CPU. With one job, they come second: the
        plugin on ``stage`` must have stopped before another instance starts.
        """
        lanes = []
        if idle := [each for each in checks if each.scene is Scene.IDLE]:
            lanes.append(self._lane(self._run_idle, idle))
        registered = [each for each in checks if each.scene is Scene.REGISTERED]
        if registered or stage is not None:
            lane = self._lane(self._run_one_after_another, in_order(registered), stage)
            lanes.insert(0 if jobs == 1 else len(lanes), lane)
        yield from lanes
        for check in in_order([each for each in checks if each.scene is Scene.OWN]):
            yield self._lane(self._run_alone, [check])

    def _is_decided(self, id_: str) -> bool:
        return id_ not in self._decided or self._decided[id_].is_set()

    def _lane(
        self, run: Callable[..., Iterable[Verdict]], checks: Sequence[Check], *more: Stage | None
    ) -> Lane:
        """Return a lane. When it ends, checks that wait for its verdicts continue."""

        def lane() -> Iterator[Verdict]:
            try:
                yield from run(checks, *more)
            # Even after an exception: the other lanes would otherwise wait forever, and the run
            # would not end.
            finally:
                for check in checks:
                    self._decided[check.id].set()

        return Lane(checks, lane)

    def _run_one_after_another(
        self, checks: Sequence[Check], stage: Stage | None
    ) -> Iterable[Verdict]:
        is_used, waiting = False, list(checks)
        try:
            while waiting:
                check = waiting.pop(0)
                if cause := self._cause(check):
                    yield self._skipped(check, _repeats(cause), cause)
                    continue
                if stage is None:
                    stage, failure = self._registered_stage()
                    is_used = False
                    if failure is not None and check.needs_registration:
                        # The plugin has registered before. Each further start would wait for the
                        # timeout again.
                        needing = [each for each in waiting if each.needs_registration]
                        yield from self._repeated([check, *needing], failure)
                        waiting = [each for each in waiting if not each.needs_registration]
                        stage.close()
                        stage = None
                        continue
                result = self._judge(check, self._new_run(check, stage))
                # An earlier check may have broken the plugin, so the failure may not be this
                # check's own.
                if result.outcome in _BAD and is_used:
                    stage.close()
                    stage, failure = self._registered_stage()
                    if failure is None:
                        result = self._alone(check, stage, result)
                yield self._verdict(check, result)
                is_used = True
                if result.outcome not in (Outcome.PASS, Outcome.SKIP):
                    # The fault that this check has found may break the next check, too.
                    stage.close()
                    stage = None
        finally:
            if stage is not None:
                stage.close()

    def _alone(self, check: Check, stage: Stage, shared: _Result) -> _Result:
        """Run a check again, on a new stage, and return the new result.

        ``shared`` is the failure of the check on a used stage. If the check passes now, an earlier
        check had broken the plugin.
        """
        result = self._judge(check, self._new_run(check, stage))
        if result.outcome not in (Outcome.PASS, Outcome.SKIP) or not shared.crash:
            return result
        seen = (
            f"passes alone, but the {self.plugin.kind} exited after other checks on the same "
            f"kubelet: {shared.crash}"
        )
        return attrs.evolve(shared, outcome=Outcome.WARN, seen=seen)

    def _run_idle(self, checks: Sequence[Check]) -> Iterable[Verdict]:
        stage, failure = self._registered_stage()
        try:
            if failure is not None:
                yield from self._repeated(checks, failure)
                return
            # All runs begin before the idle time, so that each check sees all of it.
            runs = [self._new_run(check, stage) for check in checks]
            stage.plugin.begin_idle()
            runs[0].settle(self.limits.idle_seconds)
            for check, run in zip(checks, runs, strict=True):
                yield self._verdict(check, self._judge(check, run))
        finally:
            stage.close()

    def _run_alone(self, checks: Sequence[Check]) -> Iterable[Verdict]:
        [check] = checks
        if cause := self._cause(check):
            yield self._skipped(check, _repeats(cause), cause)
            return
        stage = self._stage()
        try:
            yield self._run_check(check, self._new_run(check, stage))
        finally:
            stage.close()

    # -- stages ------------------------------------------------------------------------

    def _stage(self, on_wait: OnWait | None = None) -> Stage:
        return self.stages.open(
            lambda: self.suite.stage(
                self.plugin, self.limits, self.settings, on_wait, self._device_counts
            )
        )

    def _registered_stage(self, on_wait: OnWait | None = None) -> tuple[Stage, _Result | None]:
        """Start a kubelet and the plugin. Return the stage, and the failure if the plugin does not
        register."""
        stage = self._stage(on_wait)
        run = self.suite.new_run(stage, self.resources, "start")
        try:
            run.start()
        except (Failed, Warned) as failed:
            return stage, _result(Outcome.FAIL, str(failed), run, is_lost=True)
        # The plugin has not failed: the disk is full, for example, or the hook `prepare` fails.
        except Exception as error:
            return stage, _result(Outcome.ERROR, _error_text(error), run)
        return stage, None

    def _check_command(self) -> None:
        """Start the plugin normally. Raises CheckError if its command does not exist."""
        stage, _ = self._registered_stage()
        try:
            if stage.plugin.could_not_start:
                raise CheckError(
                    why_unregistered(self.suite.new_run(stage, self.resources, "start"))
                )
        finally:
            stage.close()

    # -- verdicts ----------------------------------------------------------------------

    def _new_run(self, check: Check, stage: Stage) -> SuiteRun:
        # The ID is part of the seed, so that a check gets the same inputs alone and in a full run.
        run = self.suite.new_run(stage, self.resources, f"{self.seed} {check.id}")
        run.disproved = self._disproved
        return run

    def _run_check(self, check: Check, run: SuiteRun) -> Verdict:
        return self._verdict(check, self._judge(check, run))

    def _judge(self, check: Check, run: SuiteRun) -> _Result:
        """Run a check. A check about one resource (``Check.each_resource``) is run for each
        resource with devices, until a run fails or warns."""
        subjects: list[str | None] = []
        if check.each_resource and len(self.resources) > 1:
            subjects = [name for name in self.resources if self._device_counts.get(name)]
        begin = time.monotonic()
        results = []
        for run.subject in subjects or [None]:
            results.append(self._judge_one(check, run))
            if results[-1].outcome in _BAD:
                break
        bad, passed = (
            [each for each in results if each.outcome in outcomes]
            for outcomes in (_BAD, (Outcome.PASS,))
        )
        # A check that passes for one resource has passed, even if it does not apply to another one.
        [result, *_] = bad or passed or results
        if bad and len(subjects) > 1 and run.subject is not None and run.subject not in result.seen:
            result = attrs.evolve(result, seen=f"{run.subject}: {result.seen}")
        return attrs.evolve(result, seconds=time.monotonic() - begin)

    def _judge_one(self, check: Check, run: SuiteRun) -> _Result:
        is_lost, cause, symptom = False, "", ""
        try:
            outcome, seen = Outcome.PASS, check.run(run) or ""
        except Failed as failed:
            outcome, seen, is_lost = _failure(check), str(failed), isinstance(failed, Lost)
            cause, symptom = failed.cause, failed.symptom
        except Warned as warned:
            outcome, seen = Outcome.WARN, str(warned)
        except Skipped as skipped:
            outcome, seen, cause = Outcome.SKIP, str(skipped), skipped.cause
        except CallFailed as failed:
            outcome, seen = _failure(check), f"a call that should succeed: {failed}"
        except ProcessEnded:
            outcome, seen = _failure(check), f"the {run.kind} exited: {run.plugin.exit_text()}"
        except HookFailed as failed:
            # Several checks may run the same hook at the same time.
            outcome, seen = Outcome.ERROR, str(failed)
            # setdefault is atomic, so exactly one of these checks reports the error.
            first = self._failed_hooks.setdefault(failed.hook, check.id)
            if first != check.id:
                outcome, seen, cause = Outcome.SKIP, f"the hook {failed.hook} failed", first
        except Exception as error:
            outcome, seen = Outcome.ERROR, _error_text(error)
        # Checks of other scenes may stop the plugin themselves.
        is_shared = check.scene is Scene.REGISTERED and check.needs_registration
        if is_shared and outcome in (Outcome.PASS, Outcome.SKIP) and run.plugin.has_crashed:
            how = run.plugin.exit_text()
            outcome, seen, cause = (
                _failure(check),
                f"the {run.kind} exited during the check: {how}",
                "",
            )
        result = _result(outcome, seen, run, is_lost=is_lost)
        return attrs.evolve(result, cause=cause, symptom=symptom)

    def _verdict(self, check: Check, result: _Result) -> Verdict:
        """Create a verdict and pass it to ``on_verdict``, unless it depends on another verdict.

        Raises CheckError if the plugin's command does not exist.
        """
        # Test this even if the check passed: the check may have expected an exit.
        if result.run.plugin.could_not_start:
            self._check_command()
        outcome, seen = result.outcome, result.seen
        # A plugin that restarts correctly, but with other devices, can be tested further.
        if outcome is Outcome.FAIL and (result.is_lost or check.family != self.suite.restarts):
            self._causes[check.id] = check.id
        # Applied after the cause is stored, because checks that would repeat a waived failure are
        # skipped, too.
        if outcome in (Outcome.FAIL, Outcome.WARN):
            outcome, seen = self.waivers.applied(check.id, outcome, seen)
        verdict = Verdict(
            check,
            outcome,
            printable(seen),
            result.seconds,
            result.timeline,
            result.output,
            self.reproduce(check),
            symptom=result.symptom,
        )
        if result.cause and outcome is not Outcome.WAIVED:
            self._supposed[check.id] = result.cause
        else:
            self._publish(verdict)
        # Set before the lane ends, for later checks of the same lane.
        if check.id in self._decided:
            self._decided[check.id].set()
        return verdict

    def _completed(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return all verdicts, and publish those that depend on another verdict."""
        known = {each.check.id: each for each in verdicts}
        completed = []
        for verdict in verdicts:
            if supposed := self._supposed.get(verdict.check.id):
                verdict = with_cause(verdict, supposed, known)
                self._publish(verdict)
            completed.append(verdict)
        return completed

    def _publish(self, verdict: Verdict) -> None:
        # Lanes run in parallel, and the callback of the user need not be thread-safe.
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


def _result(outcome: Outcome, seen: str, run: SuiteRun, *, is_lost: bool = False) -> _Result:
    """Return a result. For a failure, warning or error, it has the timeline up to now."""
    if outcome not in _BAD:
        return _Result(outcome, seen, run)
    plugin = run.plugin
    crash = plugin.exit_text() if plugin.processes and plugin.has_crashed else ""
    timeline, output = run.timeline.lines(), run.timeline.output()
    return _Result(outcome, seen, run, 0.0, is_lost, crash, timeline, output)


def _error_text(error: Exception) -> str:
    # The text of a CheckError is for users. For any other error, they also need its type.
    return str(error) if isinstance(error, CheckError) else f"{type(error).__name__}: {error}"


def take_lane(lanes: list[Lane], is_decided: Callable[[str], bool]) -> Lane:
    """Remove the lane that should run next from ``lanes``, and return it. A lane has checks that
    run one after another.

    The next lane is the first one that need not wait, or the first of all if every lane must wait.
    A lane must wait if its first check follows a check without a verdict (``Check.follows``).
    ``is_decided`` returns True if the check with this ID has a verdict or is not part of the run.
    """
    ready = (
        lane
        for lane in lanes
        if all(is_decided(id_) for check in lane.checks[:1] for id_ in check.follows)
    )
    lane = next(ready, lanes[0])
    lanes.remove(lane)
    return lane


def in_order(checks: Sequence[Check]) -> list[Check]:
    """Return ``checks`` in the order in which they should begin. No check waits for a later one.

    The order has four groups:

    1. Checks that other checks follow (``Check.follows``).
    2. Checks that follow a check of group 1. They begin early, because many of them wait for a
       registration after a restart. If the plugin does not register, this takes long.
    3. Checks that are in no other group.
    4. Checks that assume the result of a check outside ``checks`` (``Check.assumes``). They begin
       late, so that the other check has its verdict if possible.
    """
    by_id = {each.id: each for each in checks}
    awaited = {id_ for each in checks for id_ in each.follows}

    def depth(check: Check) -> int:
        before = [by_id[id_] for id_ in check.follows if id_ in by_id]
        return 1 + max(map(depth, before)) if before else 0

    def place(check: Check) -> tuple[int, int]:
        if check.id in awaited:
            return 0, depth(check)
        return (1, -depth(check)) if depth(check) or not check.assumes else (2, 0)

    return sorted(checks, key=place)


def with_cause(verdict: Verdict, supposed: str, known: Mapping[str, Verdict]) -> Verdict:
    """Return the final verdict of a check that may repeat the failure of another check.

    ``verdict`` is the verdict so far. ``supposed`` is the ID of the other check. ``known`` has all
    verdicts by ID. The first case that applies decides:

    1. The other check was not selected: if the verdict is a skip, its text refers to the other
       check. A failure or warning does not change.
    2. The other check has failed: the verdict becomes a skip, and its text refers to that check.
    3. The other check was skipped because of a third check: the verdict becomes a skip, and its
       text refers to the third check.
    4. All other cases: the verdict does not change.
    """
    other = known.get(supposed)
    if other is None:
        if verdict.outcome is not Outcome.SKIP:
            return verdict
        return attrs.evolve(verdict, seen=_referring(verdict.seen, supposed))
    has_failed = other.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED)
    cause = supposed if has_failed else other.cause
    if not cause:
        return verdict
    return Verdict(
        verdict.check,
        Outcome.SKIP,
        _referring(verdict.seen, cause),
        verdict.seconds,
        cause=cause,
    )


def _repeats(cause: str) -> str:
    return _referring("would repeat a failure", cause)


def _referring(reason: str, cause: str) -> str:
    return f"{reason}: see check {cause}"


def _failure(check: Check) -> Outcome:
    return Outcome.WARN if check.severity is Severity.INFO else Outcome.FAIL


def why_unregistered(run: SuiteRun) -> str:
    """Return a text that says why the plugin did not register after its start, with its last
    output."""
    printed = run.last_output
    # The most specific reason first.
    if rejected := run.rejection():
        return f"the kubelet rejected the {run.kind}: {rejected}. It printed: {printed}"
    # A program can also exit with this status itself. The text is that of ``plugin.processes``.
    if run.plugin.could_not_start and ": cannot be started: " in printed:
        return f"the {run.kind} did not start: {printed.removeprefix('devicemanager: ')}"
    if not run.process.is_running:
        text = (
            f"the {run.kind} exited before it registered: {run.plugin.exit_text()}. "
            f"It printed: {printed}"
        )
        return f"{text}. {run.advice_on_output}" if run.advice_on_output else text
    text = (
        f"the {run.kind} did not register within {run.limits.start_seconds:g} s "
        "(limit start_seconds)"
    )
    if printed == NOTHING:
        return f"{text}: {run.silence}. It printed: {printed}"
    # The output shows the cause better than the missing call.
    silence = f"{run.silence[:1].upper()}{run.silence[1:]}"
    return ". ".join(filter(None, (text, f"It printed: {printed}", run.advice_on_output, silence)))
