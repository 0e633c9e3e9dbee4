"""``python -m tools.replay FORMAT FILE``, where FORMAT is checkpoint, admission or claims.

Exit status: 0 if every vector agrees, 1 if one does not, 2 if the file cannot be replayed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.replay.report import Outcome, ReplayError, report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one replay and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return report(_outcomes(options), sys.stdout)
    except ReplayError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2


def _outcomes(options: argparse.Namespace) -> Iterable[Outcome]:
    # Each replay brings its own part of the project along: only the one asked for is loaded.
    if options.format == "admission":
        from tools.replay import admission

        return admission.replay_file(options.file, options.policy)
    if options.format == "claims":
        from tools.replay import claims

        return claims.replay_file(options.file)
    from tools.replay import checkpoint

    return checkpoint.replay_file(options.file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.replay",
        description="Replay recorded vectors through the real code; exit 0 only if all agree.",
    )
    formats = parser.add_subparsers(dest="format", required=True)
    of_checkpoint = formats.add_parser("checkpoint", help="checkpoint files, one a line")
    of_admission = formats.add_parser("admission", help="scenarios of pods, one a line")
    of_claims = formats.add_parser("claims", help="a YAML file of structured claims")
    for sub in (of_checkpoint, of_admission, of_claims):
        sub.add_argument("file", type=Path, metavar="FILE")
    of_admission.add_argument(
        "--policy", help="only scenarios with this topology manager policy, such as none"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
