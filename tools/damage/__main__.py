"""``python -m tools.damage``: damage files, check how devicemanager handles them, and print
errors."""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tools.damage import checkpoints, claims, snapshots
from tools.damage.ways import damaged
from tools.harness.command import Run, counts, parser

VECTORS: Final = Path(__file__).parents[2] / "tests/checkpoint/data/checkpoint.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage files and print errors. Return 0 if there are none, else 1."""
    options = parser(
        "damage",
        "Damage checkpoints, DRA state files and snapshots, and check reports, repairs and error "
        "handling.",
        seeds=(200, "number of seeds"),
        first=(0, "first seed"),
        vectors=(VECTORS, "files of kubelets: lines of JSON with a field `file`"),
    ).parse_args(arguments)
    files = read_files(options.vectors)
    run, ways, failed = Run("damage"), Counter[str](), 0
    for seed in range(options.first, options.first + options.seeds):
        way, faults = play(files, seed)
        ways[way] += 1
        failed += bool(faults)
        for fault in faults:
            run.say(f"seed {seed} ({way}): {fault}")
    run.problems += [f"{failed} failed"] if failed else []
    of_dra = len(_state_files())
    return run.finish(
        f"{options.seeds} seeds on {len(files)} files and {of_dra} of DRA ({counts(ways)})",
        "0 failed",
    )


def play(files: Sequence[bytes], seed: int) -> tuple[str, list[str]]:
    """Damage the file that the seed selects. Return the name of the damage and all errors."""
    # Everything depends only on the seed, so that a failure can be repeated with --first.
    original = Random(seed).choice(files)
    way, data = damaged(original, seed)
    return way, list(_faults(original, data, seed))


def _faults(original: bytes, data: bytes, seed: int) -> Iterator[str]:
    try:
        yield from checkpoints.faults(original, data)
        yield from checkpoints.command_faults(data)
        yield from snapshots.report_faults(original, data)
        yield from snapshots.archive_faults(original, seed)
        yield from _claims_faults(seed)
    except Exception as error:  # a crash is an error like any other, found before or after
        yield f"raised {error!r}"


def _claims_faults(seed: int) -> Iterator[str]:
    """Damage a state file of the DRA manager, and yield all errors."""
    original = Random(seed).choice(_state_files())
    _, data = damaged(original, seed)
    for fault in (*claims.faults(original, data), *claims.command_faults(data)):
        yield f"DRA: {fault}"


@functools.cache
def _state_files() -> list[bytes]:
    return claims.read_files()


def read_files(path: Path) -> list[bytes]:
    """Return the checkpoint files with pod entries from recorded vectors."""
    vectors = map(json.loads, path.read_text().splitlines())
    files = [vector["file"].encode() for vector in vectors]
    # A file without entries has nothing to lose, and most damages would change only its brackets.
    return [file for file in files if b"PodUID" in file]


if __name__ == "__main__":
    sys.exit(main())
