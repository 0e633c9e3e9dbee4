"""``python -m tools.mutants``: change one line of code and check whether a test fails.

By default, this tries mutants of core, kubelet and checkpoint with all tests. ``sample --seed 23
--count 60`` tries mutants of all wings (top-level packages), the same number of each, with only the
tests of the wing. Surviving mutants are shown as diffs, except those in ``equivalents.toml``. The
exit status is 0 if at least the share ``--floor`` of the mutants was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from devicemanager.plugin.processes.namespace import NamespaceError, enter
from tools.mutants.mutations import Mutant, mutants_of
from tools.mutants.report import diff, explanation, read_equivalents, share_killed, table
from tools.mutants.running import MEASURED, Result, run, select
from tools.mutants.selection import LONGEST, CannotMeasure, wing_of

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutants"
MODULES = ("checkpoint", "devicemanager/core", "devicemanager/kubelet")
# The wings are the packages that have a directory of tests with the same name. The wing "faults",
# for example, is devicemanager/faults with its tests in tests/faults.
WINGS = sorted(
    init.parent.name
    for pattern in ("checkpoint", "podresources", "devicemanager/*")
    for init in ROOT.glob(f"{pattern}/__init__.py")
    if (ROOT / "tests" / init.parent.name).is_dir()
)
# Interop tests are left out: they run Go and Rust processes, which coverage does not measure.
TESTS = ("-n", "2", "-m", "not interop")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    common.add_argument(
        "--workers", type=int, default=2, help="mutants to try in parallel (default: 2)"
    )
    common.add_argument(
        "--limit",
        type=float,
        default=LONGEST,
        metavar="SECONDS",
        help="select tests of at most this duration per mutant (default: %(default)g); a run"
        " that takes four times as long as without the mutant is stopped and counts as killed",
    )
    common.add_argument(
        "--floor", type=float, default=0.9, help="share that must be killed (default: 0.9)"
    )
    common.add_argument("--list", action="store_true", help="print the number of mutants and exit")
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__, parents=[common])
    parser.add_argument(
        "--module", action="append", metavar="PATH", help="file or directory to mutate; repeatable"
    )
    parser.add_argument(
        "--tests", action="append", metavar="PATH", help="tests to use; repeatable (default: all)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants, selected by --seed")
    parser.add_argument("--again", action="store_true", help="only the survivors of the last run")
    sample = parser.add_subparsers(dest="mode").add_parser(
        "sample", parents=[common], help="the same number of mutants of each wing"
    )
    sample.add_argument("--count", type=int, default=60, help="number of mutants (default: 60)")
    sample.add_argument(
        "--wing", action="append", choices=WINGS, help="wing to mutate; repeatable (default: all)"
    )
    return parser


def all_mutants(paths: Iterable[str], root: Path = ROOT) -> list[Mutant]:
    """Return the mutants of all modules in these files and directories. ``paths`` are relative to
    ``root``."""
    files: list[Path] = []
    for path in paths:
        whole = root / path
        if not whole.exists():
            raise SystemExit(f"make mutants: no such file or directory: {path}")
        files += sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
    return [
        mutant
        for file in files
        for mutant in mutants_of(file.relative_to(root).as_posix(), file.read_text())
    ]


def spread(groups: Sequence[Sequence[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Select ``count`` mutants at random, if possible the same number of each group.

    All mutants of a small group are selected. The larger groups share the remaining number.
    """
    chance = random.Random(seed)
    # Shuffle every group. In each round, take one mutant of each group, until there are enough. The
    # order of the first round decides which groups contribute one more.
    shuffled = [chance.sample(group, len(group)) for group in groups]
    chance.shuffle(shuffled)
    rounds = range(max(map(len, shuffled), default=0))
    turns = [group[index] for index in rounds for group in shuffled if index < len(group)]
    return turns[:count]


def _wing_path(wing: str, root: Path) -> str:
    inside = f"devicemanager/{wing}"
    return inside if (root / inside).is_dir() else wing


def _key(mutant: Mutant) -> list[str]:
    return [mutant.file, mutant.where, mutant.old, mutant.new]


def _chosen(options: argparse.Namespace, root: Path) -> list[Mutant]:
    if options.mode == "sample":
        groups = [all_mutants([_wing_path(wing, root)], root) for wing in options.wing or WINGS]
        return spread(groups, options.count, options.seed)
    mutants = all_mutants(options.module or MODULES, root)
    if options.again:
        last = json.loads((CACHE / "survivors.json").read_text())
        mutants = [mutant for mutant in mutants if _key(mutant) in last]
    if options.sample is not None and options.sample < len(mutants):
        # In random order, so that an interrupted run has also tried a sample.
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    return mutants


def main() -> int:
    # A shell ignores SIGINT for background jobs. Then tests that send SIGINT would hang.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = _parser().parse_args()
    # Checked before the measurement, which takes minutes, so that a wrong path fails immediately.
    found = _chosen(options, ROOT)
    if options.list:
        print(f"{len(found)} mutants")
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    equivalents = read_equivalents()
    lock, done = threading.Lock(), 0
    measured, mutants = CACHE / MEASURED, list[Mutant]()

    def on_result(result: Result) -> None:
        nonlocal done
        with lock:
            done += 1
            if not result.is_killed and explanation(result.mutant, equivalents) is None:
                print(f"\n{result.outcome}: {diff(measured, result.mutant)}", flush=True)
            if done % 10 == 0:
                print(f"{done} of {len(mutants)}", file=sys.stderr)

    by_wing = options.mode == "sample"
    tests = [f"tests/{wing}" for wing in options.wing or WINGS] if by_wing else options.tests or []
    try:
        selection = attrs.evolve(
            select(ROOT, CACHE, [*TESTS, *tests]), same_wing=by_wing, longest=options.limit
        )
        # Mutate the copy that was measured, because the repository may have changed since.
        mutants = _chosen(options, measured)
        results = run(measured, CACHE, mutants, selection, options.workers, on_result)
    except CannotMeasure as error:
        raise SystemExit(f"make mutants: {error}") from error
    survivors = [_key(each.mutant) for each in results if not each.is_killed]
    (CACHE / "survivors.json").write_text(json.dumps(survivors))
    share = share_killed(results, equivalents)
    print(f"\n{table(results, equivalents, wing_of if by_wing else str)}\n")
    print(f"{share:.1%} of the mutants that a test can notice were killed")
    return 0 if share >= options.floor else 1


def _keep_mounts() -> None:
    """Hide from the machine what the tests mount: a mutant of the sandbox can mount over /tmp."""
    if os.geteuid() == 0:
        with contextlib.suppress(NamespaceError):  # without the capability, no test can mount
            enter([])


if __name__ == "__main__":
    _keep_mounts()
    sys.exit(main())
