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
    """Damage and tell. 0: everything was as it should; 1: something was not."""
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
    told = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    print(f"damage: {options.seeds} ways on {len(files)} files ({told}): {failed} went wrong")
    return 1 if failed else 0


def play(files: Sequence[bytes], seed: int) -> tuple[str, list[str]]:
    """Damage the file that the seed picks; the way, and all that is wrong with what follows."""
    original = Random(seed).choice(files)
    way, data = damaged(original, seed)
    return way, list(_faults(original, data, seed))


def _faults(original: bytes, data: bytes, seed: int) -> Iterator[str]:
    try:
        yield from checkpoints.faults(original, data)
        yield from checkpoints.command_faults(data)
        yield from snapshots.report_faults(original, data)
        yield from snapshots.archive_faults(original, seed)
    except Exception as error:  # one that fails must not hide what the others say
        yield f"raised {error!r}"


def read_files(path: Path) -> list[bytes]:
    """The files in recorded vectors that have something to lose."""
    vectors = map(json.loads, path.read_text().splitlines())
    files = [vector["file"].encode() for vector in vectors]
    return [file for file in files if b"PodUID" in file]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.damage",
        description="Damage checkpoints and snapshots in seeded ways, and check what is said of "
        "them, what is repaired, and that nothing crashes.",
    )
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="how many ways (200)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (0)")
    parser.add_argument(
        "--vectors",
        type=Path,
        default=VECTORS,
        metavar="FILE",
        help="files as kubelets wrote them: lines of JSON with the field `file`",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
