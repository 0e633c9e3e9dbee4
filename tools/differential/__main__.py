"""``python -m tools.differential``: compare with the real device manager in random scenarios.

Exit status: 0 if both agree except for named deviations, 1 if not, 2 if the real one cannot
be built or run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devicemanager.core.versions.version import Verified
from devicemanager.observe.terminal.progress import Work
from tools.differential.building import BuildError, build
from tools.differential.deviations import DEVIATIONS
from tools.differential.generating import scenarios
from tools.differential.newest import newest_release, profile_of
from tools.differential.recording import MOST_BYTES, line
from tools.differential.reference import Reference, ReferenceError
from tools.differential.running import Comparison, Tally
from tools.differential.verified import store
from tools.differential.versions import RELEASES, minor, release


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        # A list, so that all() cannot stop at the first version with a finding.
        agreed = [_compare(each, options) for each in options.releases]
    except (BuildError, ReferenceError) as error:
        print(f"differential: {error}", file=sys.stderr)
        return 2
    return 0 if all(agreed) else 1


def _compare(version: str, options: argparse.Namespace) -> bool:
    program = build(version, jobs=options.jobs)
    begin = time.monotonic()
    profile = profile_of(version)
    if profile != version:
        print(f"{version} is newer than all known versions: compared with {profile}")
    with Reference(program) as reference:
        comparison = Comparison(reference, profile)
        made = scenarios(options.seed, options.scenarios, minor(version))
        if options.scenario:
            made = (each for each in made if each["id"] == options.scenario)
        with Work(f"differential {version}", 1 if options.scenario else options.scenarios) as work:
            tally = comparison.run(work.tracked(made), options.findings, keep=bool(options.record))
        if options.record:
            _record(options.record, version, tally)
        taken = time.monotonic() - begin
        for finding in tally.findings:
            smallest = comparison.shrunk(finding) if options.shrink else finding
            print(f"{version}, scenario {finding.scenario['id']}: disagreement")
            for each in smallest.disagreements:
                print(f"  {each.text()}")
            print(f"  {json.dumps(smallest.scenario)}", flush=True)
    print(
        f"{version}: {tally.agreed} of {tally.scenarios} scenarios agree in {tally.facts} facts; "
        f"{tally.random} more were the reference's random choice ({taken:.0f} s)"
    )
    if options.verified and not tally.findings and not options.scenario:
        store(Verified(version, tally.scenarios, options.seed))
    for deviation in DEVIATIONS:
        if count := tally.deviations[deviation.name]:
            print(f"  {deviation.name}: {count} scenarios; {deviation.reason}")
    sys.stdout.flush()
    return not tally.findings


def _record(path: Path, version: str, tally: Tally) -> None:
    lines = [line(version, scenario, wanted) for scenario, wanted in tally.agreeing]
    with path.open("a") as file:
        file.writelines(f"{each}\n" for each in lines if len(each) <= MOST_BYTES)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.differential",
        description="Compare the mock with the kubelet's device manager in random scenarios.",
        allow_abbrev=False,
    )
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
        "--record",
        type=Path,
        metavar="FILE",
        help=f"append the scenarios that agree, up to {MOST_BYTES} bytes each, to FILE",
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
