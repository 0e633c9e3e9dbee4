"""``devicemanager checkpoint``: read, check and compare ``kubelet_internal_checkpoint``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import load_checkpoint
from devicemanager.cli.options import CommandParser, add_format, command
from devicemanager.cli.output import clean, ids_text, print_json, settings_lines

if TYPE_CHECKING:
    from checkpoint import Checkpoint, PodDevicesEntry
    from devicemanager.cli.options import Subparsers

_WITHOUT_TOPOLOGY = -1

Facts = dict[tuple[str, ...], str]
"""What a checkpoint says, by what it says it about; values are made to be compared."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand and its own subcommands."""
    parser = subparsers.add_parser("checkpoint", help="read, check or compare checkpoint files")
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(actions, "show", _show, "show what a checkpoint file holds")
    show.add_argument("file", metavar="FILE")
    show.add_argument(
        "--no-verify",
        action="store_true",
        help="show the data even if it does not fit its checksum",
    )
    add_format(show, "text", "json")
    verify = command(actions, "verify", _verify, "check a checkpoint file and its checksum")
    verify.add_argument("file", metavar="FILE")
    add_format(verify, "text", "json")
    diff = command(
        actions, "diff", _diff, "compare two checkpoint files: 0 if alike, 1 if not, 2 on trouble"
    )
    diff.add_argument("old", metavar="A")
    diff.add_argument("new", metavar="B")
    diff.set_defaults(trouble=2)


def _show(args: argparse.Namespace) -> int:
    import checkpoint

    loaded = load_checkpoint(args.file, verify=not args.no_verify)
    if args.output == "json":
        print_json(_as_dict(loaded))
        return 0
    for line in _lines(loaded):
        print(line)
    print(f"checksum of this data: {checkpoint.checksum(loaded)}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    import checkpoint

    loaded = load_checkpoint(args.file)
    checksum = checkpoint.checksum(loaded)
    entries, resources = len(loaded.entries or ()), len(loaded.registered_devices or ())
    if args.output == "json":
        facts = {"checksum": checksum, "entries": entries, "registered_resources": resources}
        print_json({"file": args.file, "valid": True} | facts)
    else:
        counts = f"{entries} pod device entries, {resources} registered resources"
        print(f"{clean(args.file)}: checksum {checksum} is right, {counts}")
    return 0


def _diff(args: argparse.Namespace) -> int:
    old, new = (_facts(load_checkpoint(path)) for path in (args.old, args.new))
    lines = list(_differences(old, new))
    for line in lines:
        print(line)
    return 1 if lines else 0


# --- as text


def _lines(loaded: Checkpoint) -> Iterator[str]:
    if not loaded.entries:
        yield "no pod holds a device"
    holder = None
    for entry in loaded.entries or ():
        if holder != (entry.pod_uid, entry.container_name):
            holder = (entry.pod_uid, entry.container_name)
            yield f"pod {clean(entry.pod_uid)}, container {clean(entry.container_name)}"
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


def _as_dict(loaded: Checkpoint) -> dict[str, Any]:
    import checkpoint

    registered = loaded.registered_devices
    return {
        "pod_device_entries": [_entry_dict(entry) for entry in loaded.entries or ()],
        "registered_devices": {name: list(ids or ()) for name, ids in (registered or {}).items()},
        "checksum": checkpoint.checksum(loaded),
    }


def _entry_dict(entry: PodDevicesEntry) -> dict[str, Any]:
    import attrs

    settings = _settings(entry)
    if isinstance(settings, str):
        answer: dict[str, Any] = {"settings_error": settings}
    else:
        answer = {"settings": attrs.asdict(settings)}
    devices = {str(node): list(ids or ()) for node, ids in (entry.device_ids or {}).items()}
    return {
        "pod_uid": entry.pod_uid,
        "container_name": entry.container_name,
        "resource_name": entry.resource_name,
        "device_ids": devices,
    } | answer


# --- compared


def _facts(loaded: Checkpoint) -> Facts:
    facts: Facts = {}
    for entry in loaded.entries or ():
        about = ("pod", entry.pod_uid, entry.container_name, entry.resource_name)
        facts[about] = "; ".join([_devices_text(entry), *_settings_lines(entry)])
    for resource, ids in (loaded.registered_devices or {}).items():
        facts["registered", resource] = _ids_text(tuple(sorted(ids or ())))
    return facts


def _differences(old: Mapping[tuple[str, ...], str], new: Facts) -> Iterator[str]:
    for about in sorted({*old, *new}):
        if old.get(about) == new.get(about):
            continue
        name = " ".join(clean(part) for part in about)
        if about in old:
            yield f"- {name}: {old[about]}"
        if about in new:
            yield f"+ {name}: {new[about]}"
