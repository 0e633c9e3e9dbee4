"""``devicemanager checkpoint repair`` and ``edit``: a file that a kubelet loads, from one that
it would reject, or without some pods."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devicemanager.cli.checkpoint_files import CheckpointFile
from devicemanager.cli.checkpoint_shown import counts
from devicemanager.cli.files import STANDARD_INPUT, directory, file_name
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from checkpoint import Checkpoint, Repair
    from devicemanager.cli.checkpoint_writing import Written
    from devicemanager.cli.options import Subparsers

_NOT_SAVED = "nothing of it can be saved: move it away, and the kubelet starts afresh"
_NOT_WRITTEN = (
    "nothing is written: --write puts it in the file's place and keeps a copy, --to OTHER "
    "writes it elsewhere"
)


def add(actions: Subparsers, file_help: str) -> None:
    """Add both actions."""
    repair = command(
        actions,
        "repair",
        _repair,
        "keep what can be read of a damaged file, with the right checksum",
        "Shows what a damaged checkpoint would be with what can be read of it and the right "
        "checksum: 0 if there is nothing to do or it is written, 1 if not.",
    )
    edit = command(
        actions,
        "edit",
        _edit,
        "take pods out of a checkpoint file",
        "Shows what a checkpoint would be without some pods: 0 if it is written, 1 if not.",
    )
    edit.add_argument(
        "--drop-pod",
        metavar="UID",
        action="append",
        required=True,
        type=_uid,
        help="a pod whose devices are free then; may be repeated",
    )
    for parser in (repair, edit):
        parser.add_argument("file", metavar="FILE", type=file_name, help=file_help)
        add_format(parser, "text", "json")
        _add_where(parser)


def _uid(text: str) -> str:
    """An argument's type: the empty text is what a shell makes of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("a pod's UID is expected, not an empty text")
    return text


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--write",
        action="store_true",
        help="replace the file, of a kubelet that is stopped; what it was is kept in a copy",
    )
    where.add_argument(
        "--to", metavar="OTHER", type=file_name, help="write a new file; - for standard output"
    )
    parser.add_argument(
        "--copies",
        metavar="DIR",
        type=directory,
        help="where --write keeps what the file was (default: beside it; above `device-plugins`, "
        "since kubelets up to 1.32 remove what they do not know from there)",
    )


def _repair(args: argparse.Namespace) -> int:
    import checkpoint

    with failures(args.output, "checkpoint-repair", file=args.file):
        _check(args)
        file = CheckpointFile.read(args.file)
        repair = checkpoint.repair(file.data)
        if repair.problems and not (
            repair.checkpoint.entries or repair.checkpoint.registered_devices
        ):
            raise CommandError(f"{args.file}: {repair.problems[0]}; {_NOT_SAVED}")
        return _end(args, file, repair, "checkpoint-repair")


def _edit(args: argparse.Namespace) -> int:
    import checkpoint

    with failures(args.output, "checkpoint-edit", file=args.file):
        _check(args)
        file = CheckpointFile.read(args.file)
        found = checkpoint.inspect(file.data)
        if found.problems:
            raise CommandError(
                f"{args.file}: {found.problems[0]}; `devicemanager checkpoint repair` comes first"
            )
        _check_there(args, found.checkpoint)
        kept = checkpoint.without_pods(found.checkpoint, args.drop_pod)
        dropped = tuple(
            f"pod {each.pod_uid}, container {each.container_name}, resource {each.resource_name}"
            for each in found.checkpoint.entries or ()
            if each.pod_uid in args.drop_pod
        )
        edited = checkpoint.Repair(checkpoint.dumps(kept), kept, dropped=dropped)
        return _end(args, file, edited, "checkpoint-edit")


def _check(args: argparse.Namespace) -> None:
    if args.copies is not None and not args.write:
        raise CommandError("--copies goes with --write")
    if args.to == STANDARD_INPUT and args.output == "json":
        raise CommandError("--to - and -o json would both write to standard output: give one")


def _check_there(args: argparse.Namespace, saved: Checkpoint) -> None:
    uids = sorted({each.pod_uid for each in saved.entries or ()})
    for uid in args.drop_pod:
        if uid not in uids:
            there = ", ".join(uids) or "none"
            raise CommandError(f"{args.file}: no pod {uid} holds a device; there are: {there}")


def _end(args: argparse.Namespace, file: CheckpointFile, repair: Repair, schema: str) -> int:
    from devicemanager.cli.checkpoint_writing import write

    written = write(file, repair.data, args) if repair.changed else None
    if args.output == "json":
        print_json(schema, _as_dict(args, repair, written))
    else:
        # Where the file itself is printed, what is said of it is not.
        stream = sys.stderr if args.to == STANDARD_INPUT else sys.stdout
        for line in _lines(repair, written):
            print(f"{clean(args.file)}: {clean(line)}", file=stream)
    return 0 if written or not repair.changed else 1


def _lines(repair: Repair, written: Written | None) -> Iterator[str]:
    yield from repair.problems
    for dropped in repair.dropped:
        yield f"left out: {dropped}"
    for note in repair.notes:
        yield f"note: {note}"
    kept = "kept" if repair.changed else "nothing to do"
    yield f"{kept}: {counts(repair.checkpoint)}"
    if written is not None:
        copy = f"; what it was is in {written.copy}" if written.copy else ""
        yield f"written to {written.path}{copy}"
    elif repair.changed:
        yield _NOT_WRITTEN


def _as_dict(
    args: argparse.Namespace, repair: Repair, written: Written | None
) -> dict[str, object]:
    return {
        "file": args.file,
        "changed": repair.changed,
        "problems": list(repair.problems),
        "dropped": list(repair.dropped),
        "notes": list(repair.notes),
        "pod_device_entries": len(repair.checkpoint.entries or ()),
        "registered_resources": len(repair.checkpoint.registered_devices or ()),
        "written": None if written is None else written.path,
        "copy": None if written is None else written.copy,
    }
