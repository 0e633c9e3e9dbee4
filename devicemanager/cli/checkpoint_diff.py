"""``devicemanager checkpoint diff``: two checkpoint files, compared."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from devicemanager.cli.checkpoint_files import inspect_checkpoint
from devicemanager.cli.checkpoint_shown import (
    answer_lines,
    devices_text,
    entry_data,
    ids_cell,
    warn,
)
from devicemanager.cli.files import check_one_standard_input, file_name
from devicemanager.cli.options import add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from checkpoint import Checkpoint
    from devicemanager.cli.options import Subparsers


def add(actions: Subparsers, file_help: str) -> None:
    """Add the action."""
    diff = command(actions, "diff", _diff, "compare two checkpoint files: 0 if alike, 1 if not")
    diff.add_argument("old", metavar="A", type=file_name, help=file_help)
    diff.add_argument("new", metavar="B", type=file_name, help=file_help)
    add_format(diff, "text", "json")


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
    # The same data under another checksum is another file.
    return 1 if changes or old.problems != new.problems else 0


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
        text = "; ".join([devices_text(entry), *answer_lines(entry)])
        facts[about] = _Fact(text, entry_data(entry))
    for resource, ids in (loaded.registered_devices or {}).items():
        healthy = tuple(sorted(ids or ()))
        facts["registered", resource] = _Fact(ids_cell(healthy), list(healthy))
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
