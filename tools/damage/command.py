"""The command line of this tool."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tools.damage import checkpoints, snapshots
from tools.damage.ways import damaged

__all__ = ["main", "play", "read_files"]

VECTORS: Final = Path(__file__).parents[2] / "tests/checkpoint/data/checkpoint.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage files, print errors, and return 0 if there are none, else 1."""
    options = _parser().parse_args(arguments)
    files = read_files(options.vectors)
    ways: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        way, faults = play(files, seed)
        ways[way] += 1
        failed += bool(faults)
        for fault in faults:
            print(f"seed {seed} ({way}): {fault}")
    counts = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    print(f"damage: {options.seeds} seeds on {len(files)} files ({counts}): {failed} failed")
    return 1 if failed else 0


def play(files: Sequence[bytes], seed: int) -> tuple[str, list[str]]:
    """Damage the file that the seed selects. Return the way of damage, and all errors."""
    # Everything follows from the seed, so that a failure can be repeated with --first.
    original = Random(seed).choice(files)
    way, data = damaged(original, seed)
    return way, list(_faults(original, data, seed))


def _faults(original: bytes, data: bytes, seed: int) -> Iterator[str]:
    try:
        yield from checkpoints.faults(original, data)
        yield from checkpoints.command_faults(data)
        yield from snapshots.report_faults(original, data)
        yield from snapshots.archive_faults(original, seed)
    except Exception as error:  # a crash is an error like any other, found before or after
        yield f"raised {error!r}"


def read_files(path: Path) -> list[bytes]:
    """Return the files with pod entries from recorded vectors."""
    vectors = map(json.loads, path.read_text().splitlines())
    files = [vector["file"].encode() for vector in vectors]
    return [file for file in files if b"PodUID" in file]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.damage",
        description="Damage checkpoints and snapshots in seeded ways, and check reports, repairs "
        "and error handling.",
    )
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="number of seeds (200)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed (0)")
    parser.add_argument(
        "--vectors",
        type=Path,
        default=VECTORS,
        metavar="FILE",
        help="files of kubelets: lines of JSON with a field `file`",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
