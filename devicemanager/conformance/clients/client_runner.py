"""Run checks on a client and collect their verdicts.

Check C01 runs first, because it measures the interval at which the client queries. If C01 fails,
all further checks are skipped, because they would fail for the same reason. Otherwise, they run in
parallel, each on its own scripted kubelet with its own client.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from devicemanager.conformance.clients.client_report import ClientReport
from devicemanager.conformance.clients.client_run import ClientRun
from devicemanager.conformance.clients.client_under_test import ClientUnderTest
from devicemanager.conformance.clients.limits import ClientLimits
from devicemanager.conformance.clients.selection import client_checks
from devicemanager.conformance.outcomes import (
    CheckError,
    Failed,
    Outcome,
    Severity,
    Skipped,
    Warned,
)
from devicemanager.conformance.registry import Check
from devicemanager.conformance.report import Verdict
from devicemanager.conformance.waivers import Waivers
from devicemanager.core.printable import printable

__all__ = ["ClientRuns", "run_client_checks"]

OnVerdict = Callable[[Verdict], object]

_INTERVALS = 3.0
"""A check waits this many times the client's own interval for a call."""


class ClientRuns:
    """Set of the ``ClientRun`` objects that are in use. ``close`` stops their clients, even from
    another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[ClientRun] = set()
        self._closed = False

    def open(self, make: Callable[[], ClientRun]) -> ClientRun:
        """Internal: call ``make`` to create a run, add the run to this set, and return it. Raises
        CheckError after ``close``."""
        with self._lock:
            if self._closed:
                raise CheckError("cannot start a client: the run was closed")
            # Created with the lock held, so that ``close`` cannot miss the run.
            run = make()
            self._open.add(run)
        return run

    def finish(self, run: ClientRun) -> None:
        """Internal: close ``run``, and remove it from this set."""
        with self._lock:
            self._open.discard(run)
        # Without the lock: a client that ignores SIGTERM takes seconds to stop, and other checks
        # start and end meanwhile.
        run.close()

    def close(self) -> None:
        """Close all open runs, even if their checks are still running. Later, ``open`` raises
        CheckError."""
        with self._lock:
            self._closed = True
            runs = list(self._open)
        # ExitStack closes all runs, even if closing one raises an exception.
        with contextlib.ExitStack() as stack:
            for run in runs:
                stack.callback(run.close)


def run_client_checks(
    client: ClientUnderTest,
    checks: Sequence[Check],
    *,
    limits: ClientLimits | None = None,
    jobs: int = 4,
    waivers: Waivers | None = None,
    on_verdict: OnVerdict | None = None,
    reproduce: Callable[[Check], str] | None = None,
    runs: ClientRuns | None = None,
) -> ClientReport:
    """Run checks on a PodResources client and return the report.

    Up to ``jobs`` clients run in parallel. If the metrics URL has a fixed port, only one client
    runs at a time. ``reproduce`` is called with a check, and returns the command that repeats it;
    the verdict of the check has this command. To end the run early, close ``runs`` on another
    thread.

    Raises CheckError if the client's command does not exist.
    """
    runner = _Runner(
        client,
        limits or ClientLimits(),
        waivers or Waivers(()),
        on_verdict or (lambda verdict: None),
        reproduce or (lambda check: f"devicemanager check --client --only {check.id} -- …"),
        runs or ClientRuns(),
    )
    begin = time.monotonic()
    verdicts = runner.run(checks, 1 if client.needs_one_port else jobs)
    return ClientReport(client, verdicts, time.monotonic() - begin)


class _Runner:
    def __init__(
        self,
        client: ClientUnderTest,
        limits: ClientLimits,
        waivers: Waivers,
        on_verdict: OnVerdict,
        reproduce: Callable[[Check], str],
        runs: ClientRuns,
    ) -> None:
        self._client = client
        self._limits = limits
        self._waivers = waivers
        self._on_verdict = on_verdict
        self._reproduce = reproduce
        self._runs = runs
        self._publishing = threading.Lock()
        self._patience = limits.call_seconds

    def run(self, checks: Sequence[Check], jobs: int) -> tuple[Verdict, ...]:
        """Return the verdicts in the order of ``checks``."""
        first = client_checks()[0]
        verdicts = {}
        # Run even if it is not selected: the other checks need the client's interval.
        verdict = self._run(first, published=first in checks)
        verdicts[first.id] = verdict
        others = [check for check in checks if check.id != first.id]
        # A waived failure is accepted, but the client's interval is unknown all the same.
        if verdict.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED):
            for check in others:
                verdicts[check.id] = self._published(
                    Verdict(check, Outcome.SKIP, f"see {first.id}: {verdict.seen}")
                )
        else:
            with ThreadPoolExecutor(jobs, thread_name_prefix="client-check") as pool:
                for each in pool.map(self._run, others):
                    verdicts[each.check.id] = each
        return tuple(verdicts[check.id] for check in checks)

    def _run(self, check: Check, *, published: bool = True) -> Verdict:
        run = self._runs.open(lambda: ClientRun(self._client, self._limits, self._patience))
        begin = time.monotonic()
        try:
            outcome, seen = self._outcome(check, run)
            # Every check would fail for this reason, so it ends the run.
            if run.process.could_not_start:
                raise CheckError(f"the client cannot be started: {run.process.exit_text()}")
            calls = run.kubelet.calls()
            if outcome is Outcome.FAIL and not calls and run.process.is_running:
                seen += f"; {self._client.advice}"
            # No lock is needed, because the first check runs alone.
            if check.id == client_checks()[0].id and (interval := run.interval) is not None:
                least = self._limits.least_wait_seconds
                self._patience = min(
                    self._limits.call_seconds, max(least, least / 2 + _INTERVALS * interval)
                )
            if outcome in (Outcome.FAIL, Outcome.WARN):
                outcome, seen = self._waivers.applied(check.id, outcome, seen)
            bad = outcome not in (Outcome.PASS, Outcome.SKIP)
            verdict = Verdict(
                check,
                outcome,
                printable(seen),
                time.monotonic() - begin,
                run.lines() if bad else (),
                run.output() if bad else (),
                self._reproduce(check),
            )
        finally:
            self._runs.finish(run)
        return self._published(verdict) if published else verdict

    def _outcome(self, check: Check, run: ClientRun) -> tuple[Outcome, str]:
        try:
            return Outcome.PASS, check.run(run) or ""
        except Failed as failed:
            is_info = check.severity is Severity.INFO
            return Outcome.WARN if is_info else Outcome.FAIL, str(failed)
        except Warned as warned:
            return Outcome.WARN, str(warned)
        except Skipped as skipped:
            return Outcome.SKIP, str(skipped)
        except Exception as error:
            # An error of the suite, which must not hide the verdicts of the other checks.
            return Outcome.ERROR, f"{type(error).__name__}: {error}"

    def _published(self, verdict: Verdict) -> Verdict:
        with self._publishing:
            self._on_verdict(verdict)
        return verdict
