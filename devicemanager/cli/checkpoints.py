"""``devicemanager checkpoint``: read, check, compare and repair ``kubelet_internal_checkpoint``.

``show`` and ``diff`` read as much as possible of a damaged file. ``verify`` checks whether a
kubelet can load the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from devicemanager.cli import checkpoint_repair
from devicemanager.cli.checkpoint_files import (
    CheckpointFile,
    as_dict,
    counts,
    devices_text,
    entry_data,
    ids_cell,
    inspect_checkpoint,
    lines,
    response_lines,
    warn,
)
from devicemanager.cli.files import (
    add_file,
    check_one_standard_input,
    check_socket,
    read_file,
)
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json
from devicemanager.cli.snapshot import load_snapshot

if TYPE_CHECKING:
    from checkpoint import Checkpoint, Finding, Inspection
    from devicemanager.cli.options import Subparsers
    from devicemanager.snapshot.names import Names

_FILE = "kubelet_internal_checkpoint, or a snapshot that contains one; - for standard input"
_MAX_PODS = 256 << 20


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager checkpoint`` and its actions."""
    parser = subparsers.add_parser(
        "checkpoint",
        help="read, check, compare and repair checkpoint files",
        description="Read, check, compare and repair checkpoint files of the kubelet, such as "
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint. Files are written only with "
        "--write or --to.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(actions, "show", _show, "show a checkpoint file, even a damaged one")
    add_file(show, "file", _FILE)
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
    add_file(verify, "file", _FILE)
    add_format(verify, "text", "json")
    diff = command(
        actions, "diff", _diff, "compare two checkpoint files; exit status 0 if equal, else 1"
    )
    add_file(diff, "old", _FILE, metavar="A")
    add_file(diff, "new", _FILE, metavar="B")
    add_format(diff, "text", "json")
    checkpoint_repair.add(actions, _FILE)


def _add_names(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    add_file(group, "--snapshot", "take pod names from this snapshot of the node")
    add_file(
        group,
        "--socket",
        "take pod names from this PodResources socket, for pods with the same devices",
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
    import checkpoint

    with failures(args.output, "checkpoint", file=args.file):
        # Checked before the first file is read, which may be standard input.
        check_one_standard_input((args.file, args.snapshot, args.pods))
        file = CheckpointFile.read(args.file)
        found = checkpoint.inspect(file.data)
        names = _names(args, file, found.checkpoint)
    # With --no-verify, report problems only if a part of the file is unreadable.
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


def _names(args: argparse.Namespace, file: CheckpointFile, saved: Checkpoint) -> Names:
    """Return the known names of the checkpoint's pods as ``namespace/name``, by UID.

    The source is the file, socket or snapshot that the user names. Raises CommandError,
    SnapshotError and PodResourcesError.
    """
    from devicemanager.snapshot.names import from_kubectl, from_pod_resources

    if args.pods is not None:
        return from_kubectl(read_file(args.pods, _MAX_PODS), args.pods)
    if args.socket is not None:
        from podresources import PodResourcesClient

        check_socket(args.socket)
        with PodResourcesClient(args.socket, rate_limit_attempts=8) as client:
            return from_pod_resources(saved, client.list())
    snapshot = file.snapshot if args.snapshot is None else load_snapshot(args.snapshot)
    if snapshot is None:
        return {}
    from devicemanager.snapshot.node import Node

    return Node(snapshot).names_in(saved)


def _verify(args: argparse.Namespace) -> int:
    import attrs

    import checkpoint
    from devicemanager.core.errors import DeviceManagerError

    try:
        found = inspect_checkpoint(args.file)
    # ``failures`` is not used, because an unreadable file is a result of verify.
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
        yield f"a kubelet does not load this file; readable: {counts(found.checkpoint)}"
    else:
        yield f"checksum {found.found} is correct, {counts(found.checkpoint)}"
    for finding in findings:
        yield finding.message


def _lost(found: Inspection) -> Iterator[str]:
    """Yield a line for each unreadable part that is not in the list of problems."""
    return (f"cannot be read: {each}" for each in found.lost if each not in found.problems)


# -- diff --------------------------------------------------------------------------------


def _diff(args: argparse.Namespace) -> int:
    with failures(args.output, "checkpoint-diff"):
        check_one_standard_input((args.old, args.new))
        old, new = inspect_checkpoint(args.old), inspect_checkpoint(args.new)
    changes = _changes(_facts(old.checkpoint), _facts(new.checkpoint))
    if args.output == "json":
        files = [{"file": args.old, "problems": list(old.problems)}]
        files += [{"file": args.new, "problems": list(new.problems)}]
        print_json("checkpoint-diff", {"files": files, "differences": _as_data(changes)})
    else:
        for line in _as_lines(changes):
            print(line)
        warn(args.old, old.problems)
        warn(args.new, new.problems)
    # Files with the same data are different if their problems differ, such as a wrong checksum.
    return 1 if changes or old.problems != new.problems else 0


class _Fact(NamedTuple):
    """An allocation or a registered resource in a checkpoint: its text, which is compared, and its
    data."""

    text: str
    data: object


_Facts = Mapping[tuple[str, ...], _Fact]
"""Facts by subject, such as a container and its resource."""

_Change = tuple[tuple[str, ...], _Fact | None, _Fact | None]
"""A subject, and its fact in the old and in the new file."""


def _facts(loaded: Checkpoint) -> _Facts:
    facts: dict[tuple[str, ...], _Fact] = {}
    for entry in loaded.entries or ():
        subject = ("pod", entry.pod_uid, entry.container_name, entry.resource_name)
        text = "; ".join([devices_text(entry), *response_lines(entry)])
        facts[subject] = _Fact(text, entry_data(entry))
    for resource, ids in (loaded.registered_devices or {}).items():
        healthy = tuple(sorted(ids or ()))
        facts["registered", resource] = _Fact(ids_cell(healthy), list(healthy))
    return facts


def _changes(old: _Facts, new: _Facts) -> list[_Change]:
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
