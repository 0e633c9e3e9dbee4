"""``devicemanager checkpoint``: read, check, compare and mend ``kubelet_internal_checkpoint``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from devicemanager.cli import checkpoint_diff, checkpoint_repair, pod_names
from devicemanager.cli.checkpoint_files import CheckpointFile, inspect_checkpoint
from devicemanager.cli.checkpoint_shown import as_dict, counts, lines, warn
from devicemanager.cli.files import check_one_standard_input, file_name
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from checkpoint import Finding, Inspection
    from devicemanager.cli.options import Subparsers

_FILE = "a kubelet_internal_checkpoint, or a snapshot with one; - for standard input"


def add(subparsers: Subparsers) -> None:
    """Add the subcommand and its own subcommands."""
    parser = subparsers.add_parser(
        "checkpoint",
        help="read, check, compare or mend checkpoint files",
        description="Read, check, compare or mend files such as a node's "
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint. Nothing is written but with "
        "--write or --to.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(actions, "show", _show, "show what a checkpoint file holds, as far as it goes")
    show.add_argument("file", metavar="FILE", type=file_name, help=_FILE)
    show.add_argument(
        "--no-verify", action="store_true", help="do not mind a checksum that is wrong"
    )
    pod_names.add(show)
    add_format(show, "text", "json")
    verify = command(
        actions,
        "verify",
        _verify,
        "check a checkpoint file: 0 if a kubelet would load it and it is consistent, 1 if not",
    )
    verify.add_argument("file", metavar="FILE", type=file_name, help=_FILE)
    add_format(verify, "text", "json")
    checkpoint_diff.add(actions, _FILE)
    checkpoint_repair.add(actions, _FILE)


def _show(args: argparse.Namespace) -> int:
    import checkpoint

    with failures(args.output, "checkpoint", file=args.file):
        check_one_standard_input((args.file, args.snapshot, args.pods))
        file = CheckpointFile.read(args.file)
        found = checkpoint.inspect(file.data)
        names = pod_names.names(args, file, found.checkpoint)
    problems = [] if args.no_verify and found.is_complete else list(found.problems)
    if args.output == "json":
        facts = {**as_dict(found, names), "problems": problems, "lost": list(found.lost)}
        print_json("checkpoint", facts)
    else:
        for line in lines(found.checkpoint, names):
            print(line)
        for line in _lost(found):
            print(clean(line))
        print(f"checksum of this data: {found.expected}")
        warn(args.file, problems)
    return 1 if problems else 0


def _verify(args: argparse.Namespace) -> int:
    import attrs

    import checkpoint
    from devicemanager.core.errors import DeviceManagerError

    try:
        found = inspect_checkpoint(args.file)
    except (CommandError, checkpoint.CheckpointError, DeviceManagerError) as error:
        if args.output == "json":
            problem = {"file": args.file, "valid": False, "problems": [str(error)]}
            print_json("checkpoint-verify", problem)
        raise
    findings = found.inconsistencies()
    valid = not found.problems and not findings
    if args.output == "json":
        facts = {
            "file": args.file,
            "valid": valid,
            "checksum": found.found,
            "expected_checksum": found.expected,
            "pod_device_entries": len(found.checkpoint.entries or ()),
            "registered_resources": len(found.checkpoint.registered_devices or ()),
            "problems": list(found.problems),
            "findings": [attrs.asdict(each) for each in findings],
        }
        print_json("checkpoint-verify", facts)
    else:
        for line in _verdict(found, findings):
            print(f"{clean(args.file)}: {clean(line)}")
    return 0 if valid else 1


def _verdict(found: Inspection, findings: Sequence[Finding]) -> Iterator[str]:
    if found.problems:
        yield from found.problems
        yield from _lost(found)
        yield f"a kubelet would not load it; {counts(found.checkpoint)} can be read"
    else:
        yield f"checksum {found.found} is right, {counts(found.checkpoint)}"
    for finding in findings:
        yield finding.message


def _lost(found: Inspection) -> Iterator[str]:
    """What cannot be read and is in no problem's text."""
    return (f"cannot be read: {each}" for each in found.lost if each not in found.problems)
