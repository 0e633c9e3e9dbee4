"""``python -m tools.conformance``: the whole matrix of the conformance suite.

The good plugin passes everything, three times with other seeds; each switch of the breakable
plugin fails the checks it is meant for. Ends with one line; exit 0 only if all holds.
"""

from __future__ import annotations

import os
import sys
import time

# gRPC reads it when it is imported: a plugin that ends would be a line of its own each time.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from devicemanager.conformance import Outcome, run, select
from devicemanager.settings import Settings
from tests.conformance.matrix import CASES, GOOD, Case, broken, limits, subject

_SETTINGS = Settings(durability="process", dial_timeout=1.0)
_SEEDS = (1, 2, 3)


def main() -> int:
    """Run it all and tell what is not as it should be."""
    begin = time.monotonic()
    wrong = 0
    for seed in _SEEDS:
        wrong += _good(seed)
    for case in CASES:
        wrong += _broken(case)
    verdict = f"{wrong} wrong" if wrong else "all as they should be"
    print(
        f"conformance: {len(_SEEDS)} runs of the good plugin, {len(CASES)} switches, {verdict}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return 1 if wrong else 0


def _good(seed: int) -> int:
    report = run(subject(*GOOD), select(), limits=limits(), seed=seed, settings=_SETTINGS)
    bad = report.of(Outcome.FAIL, Outcome.WARN, Outcome.ERROR)
    for each in bad:
        print(f"good plugin, seed {seed}: {each.check.id} {each.outcome.value}: {each.seen}")
    if seed == _SEEDS[0]:
        for each in report.verdicts:
            print(f"  {each.check.id} {each.outcome.value:5} {each.seconds:6.2f} s")
    print(f"good plugin, seed {seed}: {report.seconds:.1f} s", flush=True)
    return len(bad)


def _broken(case: Case) -> int:
    report = run(broken(case), select(case.fails), limits=limits(case), settings=_SETTINGS)
    found = {each.check.id for each in report.of(Outcome.FAIL, Outcome.WARN)}
    right = found == set(case.fails)
    told = ", ".join(f"{each.check.id} {each.outcome.value}" for each in report.verdicts)
    print(f"{'' if right else 'WRONG '}{case.switch}: {told}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
