"""Functions that the checks of plugins and of clients share: list checks, print verdicts, stop on a
signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, TypeVar

from devicemanager.cli.output import clean, print_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from devicemanager.conformance import Check, Verdict
    from devicemanager.observe.terminal.progress import Work

__all__ = ["list_checks", "print_verdict", "report_or_end", "run_until_signal"]

T = TypeVar("T")


def list_checks(args: argparse.Namespace, chosen: Sequence[Check]) -> int:
    """Print the chosen checks, and return the exit status."""
    if args.output == "json":
        print_json("check-list", {"checks": [each.data() for each in chosen]})
        return 0
    for each in chosen:
        print(f"{each.id}  {each.severity.value:6}  {each.title}")
    return 0


def print_verdict(verdict: Verdict, work: Work) -> None:
    """Print a verdict as one line, in color on a terminal."""
    check = verdict.check
    outcome = verdict.outcome.value
    seen = f": {verdict.seen}" if verdict.seen else ""
    line = f"{check.id}  {outcome:6}  {check.severity.value:6}  {check.title}{seen}"
    # Printed by the progress bar, because another print would be mixed with the bar on a terminal.
    work.print(clean(line), _STYLES[outcome])


_STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warn": "yellow",
    "skip": "dim",
    "waived": "dim yellow",
    "error": "bold magenta",
}


def report_or_end(result: T | signal.Signals) -> T:
    """Return the result of ``run_until_signal`` if it is a report. If it is a signal, end the
    process with this signal, so that a shell sees which signal it was."""
    if isinstance(result, signal.Signals):
        from devicemanager.plugin.processes.supervisor import end_as

        end_as(result)
    return result


def run_until_signal(run: Callable[[], T], close: Callable[[], None]) -> T | signal.Signals:
    """Run the checks, and return their report, or the signal that stopped them.

    The checks run on a separate thread, so that a signal stops them at any moment. After a signal,
    this function calls ``close``, which stops every program under test and removes every directory.
    It then returns without waiting for other threads.
    """
    import threading
    from concurrent.futures import Future

    from devicemanager.cli.stopping import StopSignals

    result: Future[T] = Future()

    def run_checks() -> None:
        try:
            result.set_result(run())
        # Every exception goes to the main thread, which raises it again.
        except BaseException as error:
            result.set_exception(error)
        # Wakes up the main thread, which has no other way to notice the end of the checks.
        signals.give_up()

    with StopSignals() as signals:
        # A daemon, because the process must exit after a signal even if a check hangs.
        threading.Thread(target=run_checks, name="checks", daemon=True).start()
        if (number := signals.wait()) is not None:
            # Called inside the `with` block, where a signal that is sent twice cannot end the
            # process before the cleanup.
            close()
            return number
    return result.result()
