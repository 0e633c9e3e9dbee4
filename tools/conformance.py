"""``python -m tools.conformance``: run the conformance suite on good and broken programs.

The good plugin must pass all checks, with three seeds, and so must correct plugins of other kinds,
such as one whose first device list is empty. The breakable plugin has switches, each of
which adds one bug. With a switch, the checks for this bug must fail, and no others, and the report
must name one cause. Times are compared with that of the good plugin. The last line is a summary.
The exit status is 0 if all results are as expected. With ``--own``, only the checks for the bug of
a switch are run, which takes 3 minutes. With ``--repeat 20``, the correct plugins are checked 20
times instead, and no verdict may differ between the runs.

The same follows for DRA drivers. Broken drivers only get the checks for their bug, because a run
of all checks takes a minute. ``--only plugins`` and ``--only drivers`` select one of the two.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

# Set before gRPC is imported, which reads it once. Otherwise gRPC would log a line for each plugin
# that exits.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import attrs

from devicemanager.conformance import (
    Check,
    Limits,
    Outcome,
    PluginUnderTest,
    Report,
    Verdict,
    run,
)
from devicemanager.conformance.drivers import DRIVERS
from devicemanager.conformance.registry import selected
from devicemanager.conformance.reports.text import explain
from devicemanager.conformance.suite import PLUGINS, Suite
from devicemanager.kubelet.settings import Settings
from tests.conformance import driver_matrix, matrix
from tests.conformance.matrix import Case, Subject

_SETTINGS = Settings(durability="process", dial_timeout=1.0)
_SEEDS = (1, 2, 3)
_BAD = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR)


@attrs.frozen
class _Matrix:
    """The programs of one kind, and what the checks must say about them."""

    kind: str
    cases: Sequence[Case]
    good: tuple[str, ...]
    subjects: Mapping[str, Subject]
    program: Callable[..., PluginUnderTest]
    broken: Callable[[Case], PluginUnderTest]
    limits: Callable[..., Limits]
    suite: Suite

    def select(self, only: Iterable[str] = ()) -> Sequence[Check]:
        """Return the checks with these IDs, by default all."""
        return selected(self.suite.checks(), self.suite.families, only, ())

    def run(
        self, program: PluginUnderTest, checks: Sequence[Check], limits: Limits, seed: int = 1
    ) -> Report:
        """Run checks on a program, and return the report."""
        return run(program, checks, limits=limits, seed=seed, settings=_SETTINGS, suite=self.suite)


_MATRICES = (
    _Matrix("plugin", matrix.CASES, matrix.GOOD, matrix.SUBJECTS, matrix.plugin, matrix.broken,
            matrix.limits, PLUGINS),
    _Matrix("driver", driver_matrix.CASES, driver_matrix.GOOD, driver_matrix.SUBJECTS,
            driver_matrix.driver, driver_matrix.broken, driver_matrix.limits, DRIVERS),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite on all programs, and print results that are not as expected."""
    options = _parser().parse_args(arguments)
    found = 0
    for each in _MATRICES:
        if options.only in (None, f"{each.kind}s"):
            own = options.own or (each.kind == "driver" and not options.all_checks)
            found += (_repeat if options.repeat else _matrix)(each, options, own)
    return 1 if found else 0


def _matrix(programs: _Matrix, options: argparse.Namespace, own: bool) -> int:
    """Run the suite on the programs of a matrix, and return the number of wrong results."""
    cases = [each for each in programs.cases if each.switch in options.switch or not options.switch]
    seeds = () if options.switch else _SEEDS
    begin = time.monotonic()
    reports = [_good(programs, seed) for seed in seeds]
    wrong = sum(len(report.of(*_BAD)) for report in reports) + _changes(reports)
    kinds = [] if options.switch else list(programs.subjects)
    wrong += sum(_correct(programs, kind, own) for kind in kinds)
    wrong += sum(_broken(programs, case, own) for case in cases)
    if reports and not own:
        _compare_times([each.seconds for each in reports])
    result = f"{wrong} unexpected results" if wrong else "all as expected"
    print(
        f"conformance: {len(seeds)} runs of the good {programs.kind}, {len(kinds)} other correct "
        f"{programs.kind}s, {len(cases)} switches"
        f"{' with only their own checks' if own else ''}, {result}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return wrong


def _good(programs: _Matrix, seed: int) -> Report:
    good = programs.program(*programs.good)
    report = programs.run(good, programs.select(), programs.limits(), seed)
    for each in report.of(*_BAD):
        print(f"good {programs.kind}, seed {seed}:\n{_explained(each)}")
    if seed == _SEEDS[0]:
        for each in report.verdicts:
            print(f"  {each.check.id} {each.outcome.value:5} {each.seconds:6.2f} s")
    print(f"good {programs.kind}, seed {seed}: {report.seconds:.1f} s", flush=True)
    return report


def _correct(programs: _Matrix, kind: str, own: bool) -> int:
    """Check a correct program of another kind, and return the number of wrong results."""
    subject = programs.subjects[kind]
    report = _report(programs, subject, own)
    wrong = _wrong(report, subject)
    for each in wrong:
        print(f"correct {programs.kind}, {kind}:\n{_explained(each)}")
    print(f"correct {programs.kind}, {kind}: {report.summary}", flush=True)
    return len(wrong)


def _repeat(programs: _Matrix, options: argparse.Namespace, own: bool) -> int:
    """Check each correct program ``repeat`` times. Print verdicts that are wrong or differ, and
    return their number."""
    begin, found = time.monotonic(), 0
    good = {} if options.own else {"good": Subject(programs.good, ())}
    kinds = {**good, **programs.subjects}
    for kind, subject in kinds.items():
        reports = [
            _report(programs, subject, own and kind != "good") for _ in range(options.repeat)
        ]
        wrong = [each for report in reports for each in _wrong(report, subject)]
        for each in wrong:
            print(f"correct {programs.kind}, {kind}:\n{_explained(each)}")
        differing = _changes(reports)
        found += len(wrong) + differing
        longest = max(report.seconds for report in reports)
        print(
            f"{kind}: {options.repeat} runs, {len(wrong)} wrong verdicts, {differing} checks with "
            f"different verdicts, at most {longest:.0f} s",
            flush=True,
        )
    print(f"conformance: {options.repeat} runs of {len(kinds)} correct {programs.kind}s, "
          f"{found} unexpected results, {time.monotonic() - begin:.0f} s")  # fmt: skip
    return found


def _report(programs: _Matrix, subject: Subject, own: bool = False) -> Report:
    checks = programs.select(subject.checks if own else ())
    checked = attrs.evolve(programs.program(*subject.switches), restart=subject.restart)
    return programs.run(checked, checks, programs.limits(subject))


def _wrong(report: Report, subject: Subject) -> list[Verdict]:
    return [each for each in report.of(*_BAD) if each.check.id not in subject.waived]


def _changes(reports: Sequence[Report]) -> int:
    """Print the checks whose outcome differs between runs, and return their number."""
    found = 0
    for verdicts in zip(*(report.verdicts for report in reports), strict=True):
        outcomes = [each.outcome.value for each in verdicts]
        if len(set(outcomes)) > 1:
            found += 1
            print(f"{verdicts[0].check.id} in several runs: {', '.join(outcomes)}")
    return found


def _broken(programs: _Matrix, case: Case, own: bool) -> int:
    wanted = {*case.fails, *case.also}
    checks = programs.select(wanted if own else ())
    report = programs.run(programs.broken(case), checks, programs.limits(case))
    bad = {each.check.id: each for each in report.of(*_BAD)}
    # With --own, these checks may pass: some fail only because of a check that ran before them.
    may_pass = {*case.also} - bad.keys() if own else set()
    odd = sorted((bad.keys() ^ wanted) - may_pass - {*case.may})
    outcomes = ", ".join(f"{id_} {each.outcome.value}" for id_, each in bad.items())
    causes = [
        each.verdict.check.id for each in report.causes if each.verdict.check.id not in case.may
    ]
    # Other switches in its base are faults, too.
    is_split = len(causes) > 1 and not case.base
    mark = "WRONG " if odd or is_split else ""
    print(
        f"{mark}{case.switch}: {outcomes}; causes: {' '.join(causes) or 'none'}; "
        f"{report.seconds:.0f} s",
        flush=True,
    )
    _SECONDS[case.switch] = report.seconds
    for id_ in odd:
        print(_explained(bad[id_]) if id_ in bad else f"    {id_} passes", flush=True)
    return 1 if odd or is_split else 0


_SECONDS: dict[str, float] = {}
"""Time of the run with each switch."""
_LONGEST = 1.3
"""Longest time of a run with one bug, as a multiple of that of the good plugin."""


def _compare_times(good: Sequence[float]) -> None:
    """Print the switches whose run takes much longer than the good plugin's."""
    usual = sum(good) / len(good)
    for switch, seconds in _SECONDS.items():
        if seconds > _LONGEST * usual:
            print(f"slow: {switch} takes {seconds / usual:.1f} times as long as the good plugin")


def _explained(verdict: Verdict) -> str:
    # Include the timeline: nothing else explains a result that occurs once in a hundred runs.
    return textwrap.indent(explain(verdict), "    ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.conformance",
        description="Check that good programs pass, and that each switch fails its own checks.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--own", action="store_true", help="run only the checks that belong to a switch"
    )
    parser.add_argument(
        "--repeat", type=int, default=0, metavar="N", help="only check the correct programs N times"
    )
    parser.add_argument("--only", choices=("plugins", "drivers"), help="only programs of this kind")
    parser.add_argument(
        "--all-checks", action="store_true", help="run all checks on broken drivers, too"
    )
    parser.add_argument("switch", nargs="*", help="switches to test (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
