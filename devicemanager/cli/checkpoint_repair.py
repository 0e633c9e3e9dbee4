"""``devicemanager checkpoint repair`` and ``edit``: repair a damaged checkpoint, or remove pods
from one.

Both are dry runs unless ``--write`` or ``--to`` is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devicemanager.cli.checkpoint_contents import Contents, Edited, counts_text
from devicemanager.cli.checkpoint_files import CheckpointFile, add_checkpoint, add_dra
from devicemanager.cli.files import (
    STANDARD_INPUT,
    add_directory,
    add_file,
    filled,
)
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from devicemanager.cli.checkpoint_writing import Written
    from devicemanager.cli.options import Subparsers

_NOT_SAVED = "nothing can be recovered: move the file away, and the kubelet starts without it"
_NOT_WRITTEN = (
    "dry run: --write replaces the file and keeps a copy, --to OTHER writes the result elsewhere"
)


def add(actions: Subparsers) -> None:
    """Add the actions ``repair`` and ``edit`` to ``devicemanager checkpoint``."""
    repair = command(
        actions,
        "repair",
        _repair,
        "repair a damaged checkpoint file",
        "Keep the readable part of a damaged checkpoint and correct the checksum. Without --write "
        "or --to, only show the result. The exit status is 0 if the file is written or intact, "
        "else 1.",
    )
    edit = command(
        actions,
        "edit",
        _edit,
        "remove pods from a checkpoint file",
        "Remove pods from a checkpoint. Without --write or --to, only show the result. The exit "
        "status is 0 if the file is written, else 1.",
    )
    edit.add_argument(
        "--drop-pod",
        metavar="UID",
        action="append",
        required=True,
        type=_uid,
        help="UID of the pod to remove, which frees its devices; can be repeated",
    )
    for parser in (repair, edit):
        add_checkpoint(parser, "file")
        add_dra(parser)
        add_format(parser, "text", "json")
        _add_where(parser)


def _uid(text: str) -> str:
    return filled(text, "the UID of a pod")


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--write",
        action="store_true",
        help="replace the file and keep a copy; the kubelet must be stopped",
    )
    add_file(where, "--to", "write a new file; - for standard output", metavar="OTHER")
    add_directory(
        parser,
        "--copies",
        "directory for the copy of --write (default: that of the file; for a file in "
        "`device-plugins` the directory above it, because kubelets up to 1.32 remove unknown "
        "files there)",
    )


def _repair(args: argparse.Namespace) -> int:
    with failures(args.output, "checkpoint-repair", file=args.file):
        _check(args)
        file = CheckpointFile.read(args.file, dra=args.dra)
        repair = file.contents().repaired()
        if repair.problems and repair.contents.is_empty():
            # Do not write an empty checkpoint: it would look like a successful repair.
            raise CommandError(f"{args.file}: {repair.problems[0]}; {_NOT_SAVED}")
        return _end(args, file, repair, "checkpoint-repair")


def _edit(args: argparse.Namespace) -> int:
    with failures(args.output, "checkpoint-edit", file=args.file):
        _check(args)
        file = CheckpointFile.read(args.file, dra=args.dra)
        contents = file.contents()
        # Editing would hide the damage, because the edited file gets a correct checksum.
        if contents.problems:
            raise CommandError(
                f"{args.file}: {contents.problems[0]}; use `devicemanager checkpoint repair` first"
            )
        _check_uids(args, contents)
        return _end(args, file, contents.without_pods(args.drop_pod), "checkpoint-edit")


def _check(args: argparse.Namespace) -> None:
    if args.copies is not None and not args.write:
        raise CommandError("--copies requires --write")
    if args.to == STANDARD_INPUT and args.output == "json":
        raise CommandError("--to - and -o json both write to standard output: use one of them")


def _check_uids(args: argparse.Namespace, contents: Contents) -> None:
    uids = sorted(contents.pods())
    for uid in args.drop_pod:
        if uid not in uids:
            advice = f"use one of {', '.join(uids)}" if uids else "the file has no pods"
            raise CommandError(f"{args.file}: unknown pod {uid}: {advice}")


def _end(args: argparse.Namespace, file: CheckpointFile, repair: Edited, schema: str) -> int:
    # Imported here, because most calls are dry runs.
    from devicemanager.cli.checkpoint_writing import write

    # An intact file is not written: a replacement would only leave another copy behind.
    written = write(file, repair.data, args) if repair.changed else None
    if args.output == "json":
        print_json(schema, _as_dict(args, repair, written))
    else:
        # Standard output may already contain the checkpoint (--to -).
        stream = sys.stderr if args.to == STANDARD_INPUT else sys.stdout
        for line in _lines(repair, written):
            print(f"{clean(args.file)}: {clean(line)}", file=stream)
    # 1 after a dry run, so that a script notices that the file is not repaired yet.
    return 0 if written or not repair.changed else 1


def _lines(repair: Edited, written: Written | None) -> Iterator[str]:
    yield from repair.problems
    for dropped in repair.dropped:
        yield f"removed: {dropped}"
    for note in repair.notes:
        yield f"note: {note}"
    kept = "kept" if repair.changed else "nothing to do"
    yield f"{kept}: {counts_text(repair.contents)}"
    if written is not None:
        copy = f"; the previous file is {written.copy}" if written.copy else ""
        yield f"written to {written.path}{copy}"
    elif repair.changed:
        yield _NOT_WRITTEN


def _as_dict(
    args: argparse.Namespace, repair: Edited, written: Written | None
) -> dict[str, object]:
    return {
        "file": args.file,
        "format": repair.contents.format,
        "changed": repair.changed,
        "problems": list(repair.problems),
        "dropped": list(repair.dropped),
        "notes": list(repair.notes),
        **repair.contents.counts(),
        "written": None if written is None else written.path,
        "copy": None if written is None else written.copy,
    }
