"""``python -m tools.conformance``: run the conformance suite on good and broken plugins.

The good plugin must pass all checks, with three seeds, and so must correct plugins of other kinds,
such as one whose first device list is empty. The breakable plugin has switches, each of
which adds one bug. With a switch, the checks for this bug must fail, and no others, and the report
must name one cause. Times are compared with that of the good plugin. The last line is a summary.
The exit status is 0 if all results are as expected. With ``--own``, only the checks for the bug of
a switch are run, which takes 3 minutes. With ``--repeat 20``, the correct plugins are checked 20
times instead, and no verdict may differ between the runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Sequence

# Set before gRPC is imported, which reads it once. Otherwise gRPC would log a line for each plugin
# that exits.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import attrs

from devicemanager.conformance import Outcome, Report, Verdict, run, select
from devicemanager.conformance.reports.text import explain
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import (
    CASES,
    GOOD,
    SUBJECTS,
    Case,
    Subject,
    broken,
    limits,
    plugin,
)

_SETTINGS = Settings(durability="process", dial_timeout=1.0)
_SEEDS = (1, 2, 3)
_BAD = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite on all plugins, and print results that are not as expected."""
    options = _parser().parse_args(arguments)
    if options.repeat:
        return _repeat(options.repeat, options.own)
    cases = [each for each in CASES if not options.switch or each.switch in options.switch]
    seeds = () if options.switch else _SEEDS
    begin = time.monotonic()
    reports = [_good(seed) for seed in seeds]
    wrong = sum(len(report.of(*_BAD)) for report in reports) + _changes(reports)
    kinds = [] if options.switch else list(SUBJECTS)
    wrong += sum(_correct(kind, options.own) for kind in kinds)
    wrong += sum(_broken(case, options.own) for case in cases)
    if reports and not options.own:
        _compare_times([each.seconds for each in reports])
    result = f"{wrong} unexpected results" if wrong else "all as expected"
    print(
        f"conformance: {len(seeds)} runs of the good plugin, {len(kinds)} other correct plugins, "
        f"{len(cases)} switches"
        f"{' with only their own checks' if options.own else ''}, {result}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return 1 if wrong else 0


def _good(seed: int) -> Report:
    report = run(plugin(*GOOD), select(), limits=limits(), seed=seed, settings=_SETTINGS)
    for each in report.of(*_BAD):
        print(f"good plugin, seed {seed}:\n{_explained(each)}")
    if seed == _SEEDS[0]:
        for each in report.verdicts:
            print(f"  {each.check.id} {each.outcome.value:5} {each.seconds:6.2f} s")
    print(f"good plugin, seed {seed}: {report.seconds:.1f} s", flush=True)
    return report


def _correct(kind: str, own: bool) -> int:
    """Check a correct plugin of another kind, and return the number of wrong results."""
    subject = SUBJECTS[kind]
    report = _report(subject, own)
    wrong = _wrong(report, subject)
    for each in wrong:
        print(f"correct plugin, {kind}:\n{_explained(each)}")
    print(f"correct plugin, {kind}: {report.summary}", flush=True)
    return len(wrong)


def _repeat(times: int, own: bool) -> int:
    """Check each correct plugin ``times`` times. Print verdicts that are wrong or differ."""
    begin, found = time.monotonic(), 0
    kinds = {**SUBJECTS} if own else {"good": Subject(GOOD, ()), **SUBJECTS}
    for kind, subject in kinds.items():
        reports = [_report(subject, own) for _ in range(times)]
        wrong = [each for report in reports for each in _wrong(report, subject)]
        for each in wrong:
            print(f"correct plugin, {kind}:\n{_explained(each)}")
        differing = _changes(reports)
        found += len(wrong) + differing
        longest = max(report.seconds for report in reports)
        print(
            f"{kind}: {times} runs, {len(wrong)} wrong verdicts, {differing} checks with different "
            f"verdicts, at most {longest:.0f} s",
            flush=True,
        )
    print(f"conformance: {times} runs of {len(kinds)} correct plugins, {found} unexpected results, "
          f"{time.monotonic() - begin:.0f} s")  # fmt: skip
    return 1 if found else 0


def _report(subject: Subject, own: bool = False) -> Report:
    checks = select(subject.checks if own else ())
    checked = attrs.evolve(plugin(*subject.switches), restart=subject.restart)
    return run(checked, checks, limits=limits(subject), settings=_SETTINGS)


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


def _broken(case: Case, own: bool) -> int:
    wanted = {*case.fails, *case.also}
    checks = select(wanted if own else ())
    report = run(broken(case), checks, limits=limits(case), settings=_SETTINGS)
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
        description="Check that the good plugin passes, and that each switch fails its own checks.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--own", action="store_true", help="run only the checks that belong to a switch"
    )
    parser.add_argument(
        "--repeat", type=int, default=0, metavar="N", help="only check the correct plugins N times"
    )
    parser.add_argument("switch", nargs="*", help="switches to test (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
