"""``devicemanager checkpoint``: read, check, compare and mend ``kubelet_internal_checkpoint``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli import checkpoint_repair, pod_names
from devicemanager.cli.checkpoint_files import CheckpointFile, inspect_checkpoint
from devicemanager.cli.files import check_one_standard_input
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, ids_text, print_json, settings_lines

if TYPE_CHECKING:
    from checkpoint import Checkpoint, Finding, Inspection, PodDevicesEntry
    from devicemanager.cli.options import Subparsers
    from devicemanager.snapshot.names import Names

_WITHOUT_TOPOLOGY = -1
_FILE = "a kubelet_internal_checkpoint, or a snapshot with one; - for standard input"


def add(subparsers: Subparsers) -> None:
    """Add the subcommand and its own subcommands."""
    parser = subparsers.add_parser(
        "checkpoint", help="read, check, compare or mend checkpoint files"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(actions, "show", _show, "show what a checkpoint file holds, as far as it goes")
    show.add_argument("file", metavar="FILE", help=_FILE)
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
    verify.add_argument("file", metavar="FILE", help=_FILE)
    add_format(verify, "text", "json")
    diff = command(actions, "diff", _diff, "compare two checkpoint files: 0 if alike, 1 if not")
    diff.add_argument("old", metavar="A", help=_FILE)
    diff.add_argument("new", metavar="B", help=_FILE)
    add_format(diff, "text", "json")
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
        facts = {**_as_dict(found, names), "problems": problems, "lost": list(found.lost)}
        print_json("checkpoint", facts)
    else:
        for line in _lines(found.checkpoint, names):
            print(line)
        for line in _lost(found):
            print(clean(line))
        print(f"checksum of this data: {found.expected}")
        _warn(args.file, problems)
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
    findings = [
        each
        for each in checkpoint.inconsistencies(found.checkpoint)
        # Where the file ends early, the resources are what is missing.
        if found.is_complete or each.kind is not checkpoint.FindingKind.UNREGISTERED_RESOURCE
    ]
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
        yield f"a kubelet would not load it; {_counts(found.checkpoint)} can be read"
    else:
        yield f"checksum {found.found} is right, {_counts(found.checkpoint)}"
    for finding in findings:
        yield finding.message


def _lost(found: Inspection) -> Iterator[str]:
    """What cannot be read and is in no problem's text."""
    return (f"cannot be read: {each}" for each in found.lost if each not in found.problems)


def _counts(loaded: Checkpoint) -> str:
    entries, resources = len(loaded.entries or ()), len(loaded.registered_devices or ())
    return f"{entries} pod device entries, {resources} registered resources"


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
        _warn(args.old, old.problems)
        _warn(args.new, new.problems)
    # The same data under another checksum is another file.
    return 1 if changes or old.problems != new.problems else 0


def _warn(file: str, problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"devicemanager: warning: {clean(file)}: {clean(problem)}", file=sys.stderr)


# --- as text


def _lines(loaded: Checkpoint, names: Names) -> Iterator[str]:
    if not loaded.entries:
        yield "no pod holds a device"
    holder = None
    for entry in loaded.entries or ():
        if holder != (entry.pod_uid, entry.container_name):
            holder = (entry.pod_uid, entry.container_name)
            name = names.get(entry.pod_uid)
            pod = entry.pod_uid if name is None else f"{name} ({entry.pod_uid})"
            yield f"pod {clean(pod)}, container {clean(entry.container_name)}"
        yield f"  {clean(entry.resource_name)}: {_devices_text(entry)}"
        for line in _settings_lines(entry):
            yield f"    {line}"
    if not loaded.registered_devices:
        yield "no resource is registered"
    for resource, ids in sorted((loaded.registered_devices or {}).items()):
        yield f"registered {clean(resource)}: {len(ids or ())} healthy: {_ids_text(ids)}"


def _devices_text(entry: PodDevicesEntry) -> str:
    parts = []
    for node, ids in sorted((entry.device_ids or {}).items()):
        place = "" if node == _WITHOUT_TOPOLOGY else f" on NUMA node {node}"
        parts.append(f"{_ids_text(ids)}{place}")
    return "; ".join(parts) or "no devices"


def _ids_text(ids: tuple[str, ...] | None) -> str:
    return ids_text(clean(each) for each in ids or ())


def _settings_lines(entry: PodDevicesEntry) -> Iterator[str]:
    settings = _settings(entry)
    if isinstance(settings, str):
        yield f"allocation response unreadable: {clean(settings)}"
        return
    yield from settings_lines(settings)


def _settings(entry: PodDevicesEntry) -> Any:
    """The decoded allocation response, or why it cannot be read."""
    from devicemanager.wire.errors import WireError
    from devicemanager.wire.settings import settings_from_bytes

    try:
        return settings_from_bytes(entry.alloc_resp or b"")
    except WireError as error:
        return str(error)


# --- as data


def _as_dict(found: Inspection, names: Names) -> dict[str, Any]:
    loaded = found.checkpoint
    registered = loaded.registered_devices or {}
    return {
        "pod_device_entries": [
            {"pod": names.get(entry.pod_uid), **_entry_dict(entry)}
            for entry in loaded.entries or ()
        ],
        "registered_devices": {name: list(ids or ()) for name, ids in registered.items()},
        "checksum": found.found,
        "expected_checksum": found.expected,
    }


def _entry_dict(entry: PodDevicesEntry) -> dict[str, Any]:
    from devicemanager.pods.data import settings_data

    settings = _settings(entry)
    if isinstance(settings, str):
        answer: dict[str, Any] = {"settings": None, "settings_error": settings}
    else:
        answer = {"settings": settings_data(settings), "settings_error": None}
    return {
        "pod_uid": entry.pod_uid,
        "container_name": entry.container_name,
        "resource_name": entry.resource_name,
        "devices": [
            {"numa_node": None if node == _WITHOUT_TOPOLOGY else node, "ids": list(ids or ())}
            for node, ids in sorted((entry.device_ids or {}).items())
        ],
    } | answer


# --- compared


class _Fact(NamedTuple):
    """What a checkpoint says of one thing: as text, which is compared, and as data."""

    text: str
    data: object


Facts = Mapping[tuple[str, ...], _Fact]
"""By what it is about."""

_Change = tuple[tuple[str, ...], _Fact | None, _Fact | None]
"""What it is about, and what each of the two files says of it."""


def _facts(loaded: Checkpoint) -> Facts:
    facts: dict[tuple[str, ...], _Fact] = {}
    for entry in loaded.entries or ():
        about = ("pod", entry.pod_uid, entry.container_name, entry.resource_name)
        text = "; ".join([_devices_text(entry), *_settings_lines(entry)])
        facts[about] = _Fact(text, _entry_dict(entry))
    for resource, ids in (loaded.registered_devices or {}).items():
        healthy = tuple(sorted(ids or ()))
        facts["registered", resource] = _Fact(_ids_text(healthy), list(healthy))
    return facts


def _changes(old: Facts, new: Facts) -> list[_Change]:
    abouts = ((about, old.get(about), new.get(about)) for about in sorted({*old, *new}))
    return [
        (about, before, after)
        for about, before, after in abouts
        if before is None or after is None or before.text != after.text
    ]


def _as_lines(changes: Sequence[_Change]) -> Iterator[str]:
    for about, old, new in changes:
        name = " ".join(clean(part) for part in about)
        if old is not None:
            yield f"- {name}: {old.text}"
        if new is not None:
            yield f"+ {name}: {new.text}"


def _as_data(changes: Sequence[_Change]) -> list[dict[str, object]]:
    return [
        {"about": list(about), "old": old and old.data, "new": new and new.data}
        for about, old, new in changes
    ]
