"""``python -m tools.replay FORMAT FILE``; ``--help`` lists the formats.

Exit status: 0 if every vector agrees, 1 if one does not, 2 if the file cannot be replayed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tools.replay.report import Outcome, ReplayError, report

_VERSIONS: Final = {
    "dra": ", 1.36 or 1.34",
    "dra-allocate": " or 1.36",
    "lively": ", or a version whose results are in a file beside FILE",
}
"""Formats with the option ``--kubelet-version``, and the versions that its help adds to the
default."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a file and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.format == "lively":
            from tools.replay import lively

            outcomes = lively.replay_file(options.file, options.kubelet_version)
            return lively.report(outcomes, sys.stdout)
        if options.format == "cel":
            from tools.replay import cel

            versions = [options.kubelet_version] if options.kubelet_version else list(cel.VERSIONS)
            return cel.report(cel.replay_file(options.file, versions), sys.stdout, options.texts)
        return report(_outcomes(options), sys.stdout)
    except ReplayError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2


def _outcomes(options: argparse.Namespace) -> Iterable[Outcome]:
    # Imported here because a replay of checkpoints must not need gRPC or the CEL library.
    if options.format == "admission":
        from tools.replay import admission

        return admission.replay_file(options.file, options.policy)
    if options.format == "dra":
        from tools.replay import dra

        return dra.replay_file(options.file, options.kubelet_version)
    if options.format == "dra-allocate":
        from tools.replay import dra_allocate

        return dra_allocate.replay_file(options.file, options.kubelet_version)
    if options.format == "claims":
        from tools.replay import claims

        return claims.replay_file(options.file)
    from tools.replay import checkpoint

    return checkpoint.replay_file(options.file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.replay",
        description="Replay recorded vectors through the product's code; exit 0 if all agree.",
    )
    formats = parser.add_subparsers(dest="format", required=True)
    for name, help_text in (
        ("checkpoint", "checkpoint files, one per line"),
        ("admission", "scenarios of pods, one per line"),
        ("claims", "a YAML file of structured claims"),
        ("cel", "selectors of devices, one per line"),
        ("dra", "scenarios of the DRA manager, one per line"),
        ("dra-allocate", "allocation problems of resource.k8s.io, one per line"),
        ("lively", "scenarios in which pods live, one per line"),
    ):
        sub = formats.add_parser(name, help=help_text)
        sub.add_argument("file", type=Path, metavar="FILE")
        if name == "admission":
            sub.add_argument("--policy", help="only scenarios with this topology manager policy")
        if name == "cel":
            sub.add_argument(
                "--kubelet-version", metavar="VERSION", help="1.36 or 1.37; both without it"
            )
            sub.add_argument(
                "--texts", action="store_true", help="also print texts of errors that differ"
            )
        if name in _VERSIONS:
            sub.add_argument(
                "--kubelet-version",
                default="1.37",
                metavar="VERSION",
                help=f"1.37 (default){_VERSIONS[name]}",
            )
    return parser


if __name__ == "__main__":
    sys.exit(main())
