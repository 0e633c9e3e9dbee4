"""``python -m tools.conformance``: run the conformance suite on good and broken programs.

The good plugin must pass all checks with three seeds. Correct plugins of other kinds must also pass
all checks, such as a plugin whose first device list is empty. The breakable plugin has switches,
each of which adds one bug. With a switch, only the checks for its bug must fail, and the report
must name one cause. The time of each run is compared with that of the good plugin. Several programs
are checked at the same time, because the checks mostly wait. The last line is a summary. The exit
status is 0 if all results are as expected. With ``--own``, only the checks for the bug of a switch
are run, which takes 3 minutes. With ``--repeat 20``, the correct plugins are checked 20 times
instead, and no verdict may differ between the runs.

The same follows for DRA drivers. Broken drivers only get the checks for their bug, because a run
of all checks takes a minute. ``--only plugins`` and ``--only drivers`` select one of the two.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor

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
    """The programs of one kind, and the expected results of the checks."""

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


_MATRICES = {
    "plugin": _Matrix(
        "plugin",
        matrix.CASES,
        matrix.GOOD,
        matrix.SUBJECTS,
        matrix.plugin,
        matrix.broken,
        matrix.limits,
        PLUGINS,
    ),
    "driver": _Matrix(
        "driver",
        driver_matrix.CASES,
        driver_matrix.GOOD,
        driver_matrix.SUBJECTS,
        driver_matrix.driver,
        driver_matrix.broken,
        driver_matrix.limits,
        DRIVERS,
    ),
}


@attrs.frozen
class _Job:
    """One run of a suite on one program, in a separate process."""

    kind: str
    role: str
    """``good``, ``correct``, or ``broken`` for a program with a switch."""
    name: str = ""
    seed: int = 1
    own: bool = False


@attrs.frozen
class _Result:
    """Result of a job."""

    job: _Job
    text: str
    wrong: int
    seconds: float
    outcomes: Sequence[tuple[str, str]]
    """ID and outcome of each check."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite on all programs, and print results that are not as expected."""
    options = _parser().parse_args(arguments)
    found = 0
    # The checks mostly wait. A fork would copy the threads of gRPC.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for each in _MATRICES.values():
            if options.only in (None, f"{each.kind}s"):
                own = options.own or (each.kind == "driver" and not options.all_checks)
                found += (_repeat if options.repeat else _matrix)(each, options, own, pool)
    return 1 if found else 0


def _matrix(programs: _Matrix, options: argparse.Namespace, own: bool, pool: Executor) -> int:
    """Run the suite on the programs of a matrix, and return the number of wrong results."""
    kind, begin = programs.kind, time.monotonic()
    seeds = () if options.switch else _SEEDS
    kinds = () if options.switch else tuple(programs.subjects)
    switches = [each.switch for each in programs.cases]
    switches = [each for each in switches if each in options.switch or not options.switch]
    jobs = [
        *(_Job(kind, "good", seed=seed) for seed in seeds),
        *(_Job(kind, "correct", each, own=own) for each in kinds),
        *(_Job(kind, "broken", each, own=own) for each in switches),
    ]
    results = list(_printed(pool.map(_run, jobs)))
    wrong = sum(each.wrong for each in results) + _changes(results[: len(seeds)])
    if seeds and not own:
        _compare_times(programs, results)
    result = f"{wrong} unexpected results" if wrong else "all as expected"
    print(
        f"conformance: {len(seeds)} runs of the good {kind}, {len(kinds)} other correct "
        f"{kind}s, {len(switches)} switches"
        f"{' with only their own checks' if own else ''}, {result}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return wrong


def _repeat(programs: _Matrix, options: argparse.Namespace, own: bool, pool: Executor) -> int:
    """Check each correct program ``repeat`` times. Print verdicts that are wrong or differ, and
    return their number."""
    begin, found = time.monotonic(), 0
    good = [] if options.own else [_Job(programs.kind, "good")]
    jobs = [*good, *(_Job(programs.kind, "correct", each, own=own) for each in programs.subjects)]
    if options.switch:
        jobs = [job for job in jobs if (job.name or job.role) in options.switch]
    for job in jobs:
        results = list(pool.map(_run, [job] * options.repeat))
        for each in results:
            if each.wrong:
                print(each.text)
        wrong, differing = sum(each.wrong for each in results), _changes(results)
        found += wrong + differing
        longest = max(each.seconds for each in results)
        print(
            f"{job.name or job.role}: {options.repeat} runs, {wrong} wrong verdicts, {differing} "
            f"checks with different verdicts, at most {longest:.0f} s",
            flush=True,
        )
    print(f"conformance: {options.repeat} runs of {len(jobs)} correct {programs.kind}s, "
          f"{found} unexpected results, {time.monotonic() - begin:.0f} s")  # fmt: skip
    return found


def _printed(results: Iterable[_Result]) -> Iterator[_Result]:
    for each in results:
        print(each.text, flush=True)
        yield each


def _changes(results: Sequence[_Result]) -> int:
    """Print the checks whose outcome differs between runs, and return their number."""
    found = 0
    for verdicts in zip(*(each.outcomes for each in results), strict=True):
        outcomes = [outcome for _, outcome in verdicts]
        if len(set(outcomes)) > 1:
            found += 1
            print(f"{verdicts[0][0]} in several runs: {', '.join(outcomes)}")
    return found


def _run(job: _Job) -> _Result:
    programs = _MATRICES[job.kind]
    return {"good": _good, "correct": _correct, "broken": _broken}[job.role](programs, job)


def _good(programs: _Matrix, job: _Job) -> _Result:
    good = programs.program(*programs.good)
    report = programs.run(good, programs.select(), programs.limits(), job.seed)
    bad = report.of(*_BAD)
    lines = [f"good {programs.kind}, seed {job.seed}:\n{_explained(each)}" for each in bad]
    lines.append(f"good {programs.kind}, seed {job.seed}: {report.seconds:.1f} s")
    return _result(job, report, lines, len(bad))


def _correct(programs: _Matrix, job: _Job) -> _Result:
    """Check a correct program other than the good one."""
    subject = programs.subjects[job.name]
    program = attrs.evolve(programs.program(*subject.switches), restart=subject.restart)
    checks = programs.select(subject.checks if job.own else ())
    report = programs.run(program, checks, programs.limits(subject))
    wrong = [each for each in report.of(*_BAD) if each.check.id not in subject.waived]
    lines = [f"correct {programs.kind}, {job.name}:\n{_explained(each)}" for each in wrong]
    lines.append(f"correct {programs.kind}, {job.name}: {report.summary}")
    return _result(job, report, lines, len(wrong))


def _broken(programs: _Matrix, job: _Job) -> _Result:
    case = next(each for each in programs.cases if each.switch == job.name)
    wanted = {*case.fails, *case.also}
    checks = programs.select(wanted if job.own else ())
    report = programs.run(programs.broken(case), checks, programs.limits(case))
    bad = {each.check.id: each for each in report.of(*_BAD)}
    # With --own, these checks may pass: some fail only because of a check that ran before them.
    may_pass = {*case.also} - bad.keys() if job.own else set()
    odd = sorted((bad.keys() ^ wanted) - may_pass - {*case.may})
    outcomes = ", ".join(f"{id_} {each.outcome.value}" for id_, each in bad.items())
    causes = [
        each.verdict.check.id for each in report.causes if each.verdict.check.id not in case.may
    ]
    # Other switches in its base are faults, too.
    is_split = len(causes) > 1 and not case.base
    mark = "WRONG " if odd or is_split else ""
    lines = [
        f"{mark}{case.switch}: {outcomes}; causes: {' '.join(causes) or 'none'}; "
        f"{report.seconds:.0f} s",
        *(_explained(bad[id_]) if id_ in bad else f"    {id_} passes" for id_ in odd),
    ]
    return _result(job, report, lines, 1 if odd or is_split else 0)


def _result(job: _Job, report: Report, lines: Sequence[str], wrong: int) -> _Result:
    outcomes = [(each.check.id, each.outcome.value) for each in report.verdicts]
    return _Result(job, "\n".join(lines), wrong, report.seconds, outcomes)


_LONGEST = 1.3
"""Maximum time of a run with one bug, as a multiple of the good program's time."""


def _compare_times(programs: _Matrix, results: Sequence[_Result]) -> None:
    """Print the switches whose run takes too long: more than ``_LONGEST`` times the good program's
    run or ``recover_seconds``, whichever is longer. A check must wait for ``recover_seconds`` to
    find that a program does not register again."""
    good = [each.seconds for each in results if each.job.role == "good"]
    usual = sum(good) / len(good)
    cases = {case.switch: case for case in programs.cases}
    for each in results:
        if each.job.role != "broken":
            continue
        recover_seconds = programs.limits(cases[each.job.name]).recover_seconds
        if each.seconds > _LONGEST * max(usual, recover_seconds):
            ratio = each.seconds / usual
            print(f"slow: {each.job.name} takes {ratio:.1f} times as long as the good program")


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
        "--jobs", type=int, default=2 * (os.cpu_count() or 1), metavar="N",
        help="programs to check at the same time (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=int, default=0, metavar="N", help="only check the correct programs N times"
    )
    parser.add_argument("--only", choices=("plugins", "drivers"), help="only programs of this kind")
    parser.add_argument(
        "--all-checks", action="store_true", help="run all checks on broken drivers, too"
    )
    parser.add_argument(
        "switch", nargs="*",
        help="switches to test (default: all); with --repeat, correct programs, such as good",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
