"""``python -m tools.mutants --sample 600``: break a line, see whether a test notices.

Mutants of the core, the registration, the watcher, the kubelet and the checkpoint, each in
a copy of the repository with the tests that run its lines. Survivors are shown as diffs,
unless ``equivalents.toml`` explains why nothing can notice them. Exit 0 if at least the
share that ``--floor`` asks for was killed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.equivalents import explanation, read_equivalents
from tools.mutants.mutations import Mutant, mutants_of
from tools.mutants.report import share_killed, survivor_text, table
from tools.mutants.running import MEASURED, CannotMeasure, Result, run, select

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutants"
MODULES = (
    "checkpoint",
    "devicemanager/core",
    "devicemanager/kubelet",
    "devicemanager/kubelet/registration",
)
# Peers in Go and Rust are other processes: what runs there has no coverage.
TESTS = ("-n", "2", "-m", "not interop")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--module", action="append", metavar="PATH", help="a file or directory; may be repeated"
    )
    parser.add_argument(
        "--tests", action="append", metavar="PATH", help="tests to use (default all)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    parser.add_argument("--workers", type=int, default=1, help="mutants at a time (default 1)")
    parser.add_argument("--floor", type=float, default=0.9, help="share to kill (default 0.9)")
    parser.add_argument("--again", action="store_true", help="only the survivors of the last run")
    parser.add_argument("--list", action="store_true", help="count the mutants, try none")
    return parser


def all_mutants(paths: Sequence[str], root: Path = ROOT) -> list[Mutant]:
    """The mutants of these files and directories, relative to ``root``."""
    files: list[Path] = []
    for path in paths:
        whole = root / path
        if not whole.exists():
            raise SystemExit(f"make mutants: there is no {path}")
        files += sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
    return [
        mutant
        for file in files
        for mutant in mutants_of(file.relative_to(root).as_posix(), file.read_text())
    ]


def _key(mutant: Mutant) -> list[str]:
    return [mutant.file, mutant.where, mutant.old, mutant.new]


def _chosen(options: argparse.Namespace, root: Path) -> list[Mutant]:
    mutants = all_mutants(options.module or MODULES, root)
    if options.again:
        last = json.loads((CACHE / "survivors.json").read_text())
        mutants = [mutant for mutant in mutants if _key(mutant) in last]
    if options.sample is not None and options.sample < len(mutants):
        # In no order: a run that is broken off has tried a sample, too.
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    return mutants


def main() -> int:
    # In a shell's background it is ignored, and tests that interrupt a process would hang.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = _parser().parse_args()
    # Before all else: a path that is not there is no reason to measure first.
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
                print(f"\n{result.outcome}: {survivor_text(measured, result.mutant)}", flush=True)
            if done % 25 == 0:
                print(f"{done} of {len(mutants)}", file=sys.stderr)

    try:
        selection = select(ROOT, CACHE, [*TESTS, *(options.tests or [])])
        # From here on the copy that was measured counts: the work goes on meanwhile.
        mutants = _chosen(options, measured)
        results = run(measured, CACHE, mutants, selection, options.workers, on_result)
    except CannotMeasure as error:
        raise SystemExit(f"make mutants: {error}") from error
    survivors = [_key(each.mutant) for each in results if not each.is_killed]
    (CACHE / "survivors.json").write_text(json.dumps(survivors))
    share = share_killed(results, equivalents)
    print(f"\n{table(results, equivalents)}\n")
    print(f"{share:.1%} of the mutants that a test can notice were killed")
    return 0 if share >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())
