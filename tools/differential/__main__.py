"""``python -m tools.differential``: compare with the real device manager in random scenarios.

Exit status: 0 if the results agree, except for named deviations; 1 if they do not, or if a long run
does not reach a required message, step or branch; 2 if the real manager cannot be built or run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from devicemanager.core.versions.version import Verified
from devicemanager.observe.terminal.progress import Work
from tools.differential import coverage
from tools.differential.building import BuildError, build
from tools.differential.deviations import DEVIATIONS
from tools.differential.generating import scenarios
from tools.differential.generating.real import histories
from tools.differential.newest import newest_release, profile_of
from tools.differential.ours import Mode
from tools.differential.quirk_deviations import RULES
from tools.differential.recording import MOST_BYTES, selected
from tools.differential.reference import Reference, ReferenceError
from tools.differential.running import Comparison, Finding, Tally
from tools.differential.subject import Subject
from tools.differential.verified import store
from tools.differential.versions import RELEASES, minor, release

_SHOWN: Final = 6
_LONG: Final = 1000
"""Minimum number of scenarios of a long run, which must reach everything that ``coverage``
lists."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit status."""
    options = _parser().parse_args(arguments)
    subject = _subject(options)
    check: Callable[[str, argparse.Namespace], bool] = partial(_compare, subject)
    if options.plants:
        check = partial(_plants, subject)
    elif options.rehearse:
        check = _rehearse
    elif options.dra_allocate:
        check = _allocate
    try:
        # A list: with a generator, all() would stop at the first version with a finding.
        agreed = [check(each, options) for each in _releases_of(options)]
    except (BuildError, ReferenceError) as error:
        print(f"differential: {error}", file=sys.stderr)
        return 2
    return 0 if all(agreed) else 1


def _subject(options: argparse.Namespace) -> Subject:
    if options.dra:
        # Imported here, because it imports all of ``tools.replay``.
        from tools.differential.dra.running import SUBJECT

        return SUBJECT
    return Subject(build, Reference, Comparison, scenarios, coverage, (*DEVIATIONS, *RULES))


def _releases_of(options: argparse.Namespace) -> Sequence[str]:
    """Return the releases to compare with. With ``--dra``, omit those without DRA."""
    if not options.dra:
        return tuple(options.releases)
    from tools.differential.dra.running import RELEASES as WITH_DRA

    return [each for each in options.releases if each in WITH_DRA] or WITH_DRA[-1:]


def _compare(subject: Subject, version: str, options: argparse.Namespace) -> bool:
    program = subject.build(version, jobs=options.jobs)
    begin = time.monotonic()
    profile = profile_of(version)
    if profile != version:
        print(f"{version} is newer than all known versions: compared with {profile}")
    mode = Mode(options.quirks, options.sockets)
    with subject.reference(program) as reference:
        comparison = subject.comparison(reference, profile, mode)

        def print_finding(finding: Finding) -> None:
            smallest = comparison.shrunk(finding) if options.shrink else finding
            print(f"{version}, scenario {finding.scenario['id']}: disagreement")
            for each in smallest.disagreements[:_SHOWN]:
                print(f"  {each.text()}")
            if (more := len(smallest.disagreements) - _SHOWN) > 0:
                print(f"  and {more} more")
            print(f"  {json.dumps(smallest.scenario)}", flush=True)

        made = subject.scenarios(options.seed, options.scenarios, minor(version))
        if options.program:
            made = histories(options.program, options.seed, options.scenarios, minor(version))
        if options.scenario:
            made = (each for each in made if each["id"] == options.scenario)
        with Work(f"differential {version}", 1 if options.scenario else options.scenarios) as work:
            tally = comparison.run(
                work.tracked(made),
                options.findings,
                keep=bool(options.record),
                found=print_finding,
            )
    if options.record:
        _record(options.record, version, tally)
    taken = time.monotonic() - begin
    print(
        f"{version}: {tally.agreed} of {tally.scenarios} scenarios agree in {tally.facts} facts, "
        f"and {tally.random} random ones have a value of the reference ({taken:.0f} s)"
    )
    if tally.open:
        print(f"  {tally.open} random facts have too many values to compare")
    reasons = {each.name: each.reason for each in subject.deviations}
    for name, reason in reasons.items():
        if count := tally.deviations[name]:
            print(f"  {name}: {count} scenarios; {reason}")
    has_reached_all = _has_reached_all(subject, version, options, tally)
    agrees = has_reached_all and not tally.findings
    if options.verified and agrees and not options.scenario and not options.dra:
        store(Verified(version, tally.scenarios, options.seed))
    sys.stdout.flush()
    return agrees


def _has_reached_all(
    subject: Subject, version: str, options: argparse.Namespace, tally: Tally
) -> bool:
    if options.coverage:
        print(*subject.coverage.table(tally.reached, tally.scenarios, version), sep="\n")
    if options.program or (not options.coverage and tally.scenarios < _LONG):
        return True
    missing = subject.coverage.missing(tally.reached, version)
    for name in missing:
        print(f"{version}: never reached in {tally.scenarios} scenarios: {name}")
    return not missing


def _record(path: Path, version: str, tally: Tally) -> None:
    with path.open("a") as file:
        file.writelines(f"{each}\n" for each in selected(version, tally.agreeing))


def _rehearse(version: str, options: argparse.Namespace) -> bool:
    from tools.differential.rehearsing import cases, compare

    if options.dra:
        return _rehearse_claims(version, options)
    with Reference(build(version, jobs=options.jobs)) as reference:
        made = cases(options.seed, options.scenarios, minor(version))
        counts = compare(reference, version, made)
    for each in counts.differences[: options.findings]:
        print(f"{version}, case {each.case['id']}: {each.text()}")
        print(f"  {json.dumps(each.case)}")
    print(
        f"{version}: {counts.cases} restarts and reboots rehearsed: of {counts.pods} pods, "
        f"{counts.lost} were rejected, {counts.open} have several rehearsed outcomes, and "
        f"{len(counts.differences)} had an outcome that was not rehearsed"
    )
    return not counts.differences


def _rehearse_claims(version: str, options: argparse.Namespace) -> bool:
    from tools.differential.dra import rehearsing
    from tools.differential.dra.running import SUBJECT

    with SUBJECT.reference(SUBJECT.build(version, jobs=options.jobs)) as reference:
        made = rehearsing.cases(options.seed, options.scenarios)
        counts = rehearsing.compare(reference, version, made)
    for each in counts.differences[: options.findings]:
        print(f"{version}, case {each.case['id']}: {each.text()}")
    print(
        f"{version}: {counts.cases} changes of nodes with claims rehearsed: of {counts.pods} pods, "
        f"{counts.lost} had an error, and {len(counts.differences)} had another outcome than "
        "rehearsed"
    )
    return not counts.differences


def _allocate(version: str, options: argparse.Namespace) -> bool:
    from tools.differential.dra_allocate import running

    if version not in running.RELEASES:
        print(f"{version}: skipped: allocators of {', '.join(running.RELEASES)} are compared")
        return True
    count, seed = options.scenarios, options.seed
    return running.run(version, count, seed, options.findings, jobs=options.jobs)


def _plants(subject: Subject, version: str, options: argparse.Namespace) -> bool:
    # Imported here: the list belongs to the tests.
    from tools.differential.planting import notice_all

    return notice_all(subject, version, subject.build(version, jobs=options.jobs), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.differential",
        description="Compare the mock with the kubelet's device manager in random scenarios.",
        allow_abbrev=False,
    )
    parser.add_argument("--dra", action="store_true", help="compare the DRA managers; since 1.32")
    parser.add_argument(
        "--kubelet-version",
        dest="releases",
        type=_releases,
        default=(RELEASES[-1],),
        metavar="VERSION",
        help=f"such as 1.34; all; or newest, which is the newest published one; known are "
        f"{', '.join(RELEASES)} (default: {RELEASES[-1]})",
    )
    for option, default, what in (
        ("--scenarios", 200, "number of scenarios"),
        ("--seed", 1, "seed for random scenarios"),
        ("--findings", 10, "stop after N findings"),
        ("--jobs", 2, "packages to compile in parallel"),
    ):
        text = f"{what} (default: {default})"
        parser.add_argument(option, type=int, default=default, metavar="N", help=text)
    parser.add_argument("--scenario", metavar="ID", help="only the scenario with this ID")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="print what was reached, and fail if something listed was not",
    )
    parser.add_argument(
        "--sockets", action="store_true", help="run the mock's plugins on real sockets"
    )
    parser.add_argument(
        "--quirks",
        choices=("reference", "default"),
        default="reference",
        help="quirks of the mock (default: reference, all that the version has)",
    )
    parser.add_argument(
        "--program",
        metavar="COMMAND",
        help="run histories of a node with this plugin on both sides; $DIRECTORY is the plugin "
        "directory, $NAME the resource without its domain real.example, $COUNT its devices",
    )
    parser.add_argument(
        "--plants",
        action="store_true",
        help="check that wrong behaviours, planted in the mock one by one, are noticed",
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="rehearse restarts and reboots of nodes with the real device manager, do them there, "
        "and compare",
    )
    parser.add_argument(
        "--dra-allocate",
        action="store_true",
        help="compare the allocator of resource.k8s.io in random problems (1.34, 1.36, 1.37)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help=f"append scenarios that agree and together reach everything to FILE, "
        f"each up to {MOST_BYTES} bytes",
    )
    parser.add_argument(
        "--verified",
        action="store_true",
        help="if all scenarios agree, store it in the product and on docs/kubelet-versions.md",
    )
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="do not reduce scenarios"
    )
    return parser


def _releases(text: str) -> tuple[str, ...]:
    try:
        if text == "newest":
            return (newest_release(),)
        return RELEASES if text == "all" else (release(text),)
    except (BuildError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
