"""``python -m tools.conformance``: the whole matrix of the conformance suite.

The good plugin passes everything, three times with other seeds; each switch of the breakable
plugin fails the checks it is meant for, and no other. Ends with one line; exit 0 only if all
holds. ``--own`` carries out a switch's own checks alone, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Sequence

# gRPC reads it when it is imported: a plugin that ends would be a line of its own each time.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from devicemanager.conformance import Outcome, Report, Verdict, run, select
from devicemanager.conformance.reports.text import told
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import CASES, GOOD, Case, broken, limits, subject

_SETTINGS = Settings(durability="process", dial_timeout=1.0)
_SEEDS = (1, 2, 3)
_BAD = (Outcome.FAIL, Outcome.WARN, Outcome.ERROR)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all and tell what is not as it should be."""
    options = _parser().parse_args(arguments)
    chosen = [each for each in CASES if not options.switch or each.switch in options.switch]
    seeds = () if options.switch else _SEEDS
    begin = time.monotonic()
    reports = [_good(seed) for seed in seeds]
    wrong = sum(len(report.of(*_BAD)) for report in reports) + _changes(reports)
    wrong += sum(_broken(case, options.own) for case in chosen)
    verdict = f"{wrong} wrong" if wrong else "all as they should be"
    print(
        f"conformance: {len(seeds)} runs of the good plugin, {len(chosen)} switches"
        f"{', their own checks alone' if options.own else ''}, {verdict}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return 1 if wrong else 0


def _good(seed: int) -> Report:
    report = run(subject(*GOOD), select(), limits=limits(), seed=seed, settings=_SETTINGS)
    for each in report.of(*_BAD):
        print(f"good plugin, seed {seed}:\n{_told(each)}")
    if seed == _SEEDS[0]:
        for each in report.verdicts:
            print(f"  {each.check.id} {each.outcome.value:5} {each.seconds:6.2f} s")
    print(f"good plugin, seed {seed}: {report.seconds:.1f} s", flush=True)
    return report


def _changes(reports: Sequence[Report]) -> int:
    """How many checks have another verdict with another seed."""
    found = 0
    for verdicts in zip(*(report.verdicts for report in reports), strict=True):
        outcomes = [each.outcome.value for each in verdicts]
        if len(set(outcomes)) > 1:
            found += 1
            print(f"{verdicts[0].check.id} with other seeds: {', '.join(outcomes)}")
    return found


def _broken(case: Case, own: bool) -> int:
    wanted = {*case.fails, *case.also}
    checks = select(wanted if own else ())
    report = run(broken(case), checks, limits=limits(case), settings=_SETTINGS)
    bad = {each.check.id: each for each in report.of(*_BAD)}
    # Alone they may pass: some fail only for what other checks have done before.
    may_pass = {*case.also} - bad.keys() if own else set()
    odd = sorted((bad.keys() ^ wanted) - may_pass)
    outcomes = ", ".join(f"{id_} {each.outcome.value}" for id_, each in bad.items())
    verdict = f"{outcomes}, {report.seconds:.0f} s"
    print(f"{'WRONG ' if odd else ''}{case.switch}: {verdict}", flush=True)
    for id_ in odd:
        print(_told(bad[id_]) if id_ in bad else f"    {id_} passes", flush=True)
    return 1 if odd else 0


def _told(verdict: Verdict) -> str:
    """With its timeline: what comes once in a hundred runs can be looked into no other way."""
    return textwrap.indent(told(verdict), "    ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.conformance",
        description="The good plugin passes all checks, each broken one fails its own alone.",
        allow_abbrev=False,
    )
    parser.add_argument("--own", action="store_true", help="only the checks a switch is for")
    parser.add_argument("switch", nargs="*", help="these switches alone (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
