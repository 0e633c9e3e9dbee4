"""``devicemanager checkpoint``: read, check, compare and repair ``kubelet_internal_checkpoint`` of
the device manager and ``dra_manager_state`` of the DRA manager.

The file is recognized by its contents. ``show`` and ``diff`` read as much as possible of a damaged
file. ``verify`` checks whether a kubelet can load the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from devicemanager.cli import checkpoint_repair
from devicemanager.cli.checkpoint_contents import Contents, Fact, Facts, counts_text
from devicemanager.cli.checkpoint_files import CheckpointFile, add_checkpoint, add_dra, warn
from devicemanager.cli.files import (
    add_file,
    check_one_standard_input,
    check_socket,
    read_file,
)
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json
from devicemanager.cli.snapshot_files import load_snapshot

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.snapshot.names import Names

_MAX_PODS = 256 << 20


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager checkpoint`` and its actions."""
    parser = subparsers.add_parser(
        "checkpoint",
        help="read, check, compare and repair checkpoint files",
        description="Read, check, compare and repair checkpoint files of the kubelet: "
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint of the device manager and "
        "/var/lib/kubelet/dra_manager_state of the DRA manager. Files are written only with "
        "--write or --to.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(actions, "show", _show, "show a checkpoint file, even a damaged one")
    add_checkpoint(show, "file")
    show.add_argument("--no-verify", action="store_true", help="accept a wrong checksum")
    _add_names(show)
    add_format(show, "text", "json")
    verify = command(
        actions,
        "verify",
        _verify,
        "check a checkpoint file; exit status 0 if a kubelet can load it and it is consistent, "
        "else 1",
    )
    add_checkpoint(verify, "file")
    add_format(verify, "text", "json")
    diff = command(
        actions, "diff", _diff, "compare two checkpoint files; exit status 0 if equal, else 1"
    )
    add_checkpoint(diff, "old", metavar="A")
    add_checkpoint(diff, "new", metavar="B")
    add_format(diff, "text", "json")
    for parser in (show, verify, diff):
        add_dra(parser)
    checkpoint_repair.add(actions)


def _add_names(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    add_file(group, "--snapshot", "take pod names from this snapshot of the node")
    add_file(
        group,
        "--socket",
        "take pod names from this PodResources socket, for pods with the same devices or claims",
        metavar="PATH",
    )
    add_file(
        group,
        "--pods",
        "take pod names from the output of `kubectl get pods --all-namespaces -o json`; - "
        "for standard input",
    )


# -- show and verify ---------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    with failures(args.output, "checkpoint", file=args.file):
        # Checked before the first file is read, which may be standard input.
        check_one_standard_input((args.file, args.snapshot, args.pods))
        file = CheckpointFile.read(args.file, dra=args.dra)
        contents = file.contents()
        names = _names(args, file, contents)
    # With --no-verify, report problems only if a part of the file is unreadable.
    problems = [] if args.no_verify and contents.is_complete else list(contents.problems)
    found, expected = contents.checksums
    if contents.is_empty() and not contents.is_complete and args.output == "text":
        # An empty list would say that nothing is allocated, but that is not known.
        reasons = [*contents.problems, *_lost(contents)]
        raise CommandError(f"{args.file}: nothing can be read: {'; '.join(reasons)}")
    if args.output == "json":
        facts = {
            "format": contents.format,
            **contents.as_dict(names),
            "checksum": found,
            "expected_checksum": expected,
            "problems": problems,
            "lost": list(contents.lost),
        }
        print_json("checkpoint", facts)
    else:
        for line in contents.lines(names):
            print(line)
        for line in _lost(contents):
            print(clean(line))
        print(f"checksum of this data: {expected}")
        warn(args.file, problems)
    return 1 if problems else 0


def _names(args: argparse.Namespace, file: CheckpointFile, contents: Contents) -> Names:
    """Return the known names of the checkpoint's pods as ``namespace/name``, by UID.

    The source is the file, socket or snapshot that the user names. Raises CommandError,
    SnapshotError and PodResourcesError.
    """
    if args.pods is not None:
        from devicemanager.snapshot.names import from_kubectl

        return from_kubectl(read_file(args.pods, _MAX_PODS), args.pods)
    if args.socket is not None:
        from podresources import PodResourcesClient

        check_socket(args.socket)
        # Retries, because all clients of a kubelet share its rate limit.
        with PodResourcesClient(args.socket, rate_limit_attempts=8) as client:
            return contents.names_of(client.list())
    snapshot = file.snapshot if args.snapshot is None else load_snapshot(args.snapshot)
    if snapshot is None:
        return {}
    from devicemanager.snapshot.node import Node

    return contents.names_in(Node(snapshot))


def _verify(args: argparse.Namespace) -> int:
    import checkpoint
    from devicemanager.core.errors import DeviceManagerError

    try:
        contents = CheckpointFile.read(args.file, dra=args.dra).contents()
    # ``failures`` is not used, because an unreadable file is a result of verify.
    except (CommandError, checkpoint.CheckpointError, DeviceManagerError) as error:
        if args.output == "json":
            problem = {"file": args.file, "valid": False, "problems": [str(error)]}
            print_json("checkpoint-verify", problem)
        # Raised again, so that standard error also has the error, and the exit status is 2.
        raise
    findings = contents.findings()
    valid = not contents.problems and not findings
    found, expected = contents.checksums
    if args.output == "json":
        facts = {
            "file": args.file,
            "format": contents.format,
            "valid": valid,
            "checksum": found,
            "expected_checksum": expected,
            **contents.counts(),
            "problems": list(contents.problems),
            "findings": [data for _, data in findings],
        }
        print_json("checkpoint-verify", facts)
    else:
        for line in _verdict(contents):
            print(f"{clean(args.file)}: {clean(line)}")
    return 0 if valid else 1


def _verdict(contents: Contents) -> Iterator[str]:
    if contents.problems:
        yield from contents.problems
        yield from _lost(contents)
        yield f"a kubelet does not load this file; readable: {counts_text(contents)}"
    else:
        found, _ = contents.checksums
        # A kubelet accepts an empty ``dra_manager_state`` without a checksum.
        text = "no checksum, but a kubelet accepts it"
        if found is not None:
            text = f"checksum {found} is correct"
        yield f"{text}, {counts_text(contents)}"
    for message, _ in contents.findings():
        yield message


def _lost(contents: Contents) -> Iterator[str]:
    """Yield a line for each unreadable part that is not in the list of problems."""
    return (f"cannot be read: {each}" for each in contents.lost if each not in contents.problems)


# -- diff --------------------------------------------------------------------------------


def _diff(args: argparse.Namespace) -> int:
    with failures(args.output, "checkpoint-diff"):
        check_one_standard_input((args.old, args.new))
        old, new = (CheckpointFile.read(each, dra=args.dra) for each in (args.old, args.new))
        before, after = old.contents(), new.contents()
        # Files of different formats have no facts in common, so every line would be a difference.
        if before.format != after.format:
            raise CommandError(
                f"{args.old} is a {before.format}, {args.new} is a {after.format}: compare two "
                "files of one kind"
            )
    changes = _changes(before.facts(), after.facts())
    if args.output == "json":
        files = [{"file": args.old, "problems": list(before.problems)}]
        files += [{"file": args.new, "problems": list(after.problems)}]
        facts = {"format": before.format, "files": files, "differences": _as_data(changes)}
        print_json("checkpoint-diff", facts)
    else:
        for line in _as_lines(changes):
            print(line)
        warn(args.old, before.problems)
        warn(args.new, after.problems)
    # Files with the same data are different if their problems differ, such as a wrong checksum.
    return 1 if changes or before.problems != after.problems else 0


_Change = tuple[tuple[str, ...], Fact | None, Fact | None]
"""A subject, and its fact in the old and in the new file."""


def _changes(old: Facts, new: Facts) -> list[_Change]:
    # Compared by subject, because kubelets write the same entries in different orders.
    subjects = ((each, old.get(each), new.get(each)) for each in sorted({*old, *new}))
    return [
        (subject, before, after)
        for subject, before, after in subjects
        if before is None or after is None or before.text != after.text
    ]


def _as_lines(changes: Sequence[_Change]) -> Iterator[str]:
    for subject, old, new in changes:
        name = " ".join(clean(part) for part in subject)
        if old is not None:
            yield f"- {name}: {old.text}"
        if new is not None:
            yield f"+ {name}: {new.text}"


def _as_data(changes: Sequence[_Change]) -> list[dict[str, object]]:
    return [
        {"about": list(subject), "old": old and old.data, "new": new and new.data}
        for subject, old, new in changes
    ]
