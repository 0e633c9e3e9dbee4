"""``devicemanager snapshot``: a node as it is, in one file, and what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import files
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.snapshot import Snapshot

_DESCRIPTION = """\
Read what a node's kubelet, its plugins and its files say of devices, and put it in one archive.
Nothing is changed: files are read, PodResources is asked twice, and each socket is connected to
and left at once. What may not be read is said, here and in the archive.
"""
_EPILOG = """\
examples:
  %(prog)s -o node.tar.gz                 on the node
  %(prog)s --host /host -o node.tar.gz    where the node's file system is mounted at /host
  %(prog)s --root ./node -o node.tar.gz   of a mock kubelet
  %(prog)s show node.tar.gz               anywhere
"""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand and its own subcommand."""
    parser = command(
        subparsers, "snapshot", _take, "put what a node says in one file", _DESCRIPTION
    )
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s [options]\n       %(prog)s show FILE [-o text|json]"
    parser.add_argument(
        "-o",
        "--output",
        dest="archive",
        metavar="FILE",
        help="a new file for the archive; - for standard output (default: a name made of the "
        "node's and the time)",
    )
    _add_places(parser)
    # By default an action's own usage would begin with the one above.
    actions = parser.add_subparsers(metavar="ACTION", prog=parser.prog, parser_class=CommandParser)
    show = command(
        actions,
        "show",
        _show,
        "say what is wrong on a node, and what to do: 0 if nothing is, 1 if something is",
    )
    show.add_argument(
        "file", metavar="FILE", type=files.file_name, help="a snapshot; - for standard input"
    )
    add_format(show, "text", "json")


def _add_places(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where things are, as seen from here")
    group.add_argument(
        "--host",
        metavar="DIR",
        type=files.directory,
        default="/",
        help="the root of the node's file system (default: /)",
    )
    group.add_argument(
        "--root",
        metavar="DIR",
        type=files.directory,
        help="the kubelet's directory, of a mock kubelet for one (default: that of the kubelet "
        "that runs, or var/lib/kubelet)",
    )
    group.add_argument(
        "--plugin-dir",
        metavar="DIR",
        type=files.directory,
        help="where plugins register (default: var/lib/kubelet/device-plugins, below --root "
        "device-plugins)",
    )
    group.add_argument(
        "--kubelet-config",
        metavar="FILE",
        help="the kubelet's configuration (default: that of the kubelet that runs, or config.yaml "
        "in its directory)",
    )


def _take(args: argparse.Namespace) -> int:
    from devicemanager.snapshot import Places, archive, collect

    root, plugin_dir, config = (
        None if each is None else Path(each).absolute()
        for each in (args.root, args.plugin_dir, args.kubelet_config)
    )
    snapshot = collect(Places.find(Path(args.host), root, plugin_dir, config))
    name = args.archive or _name(snapshot)
    _write(name, archive(snapshot))
    _tell(name, snapshot)
    return 0


def _name(snapshot: Snapshot) -> str:
    node = "".join(each if each.isalnum() or each in "-." else "-" for each in snapshot.node)
    return f"snapshot-{node}-{snapshot.taken.replace(':', '')}.tar.gz"


def _write(name: str, data: bytes) -> None:
    if name == files.STANDARD_INPUT:
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None or sys.stdout.isatty():
            raise CommandError("-o -: the archive is not for a terminal: give a file or a pipe")
        stream.write(data)
        return
    # Not readable for others: what plugins answered may be nobody's business.
    files.write_new(name, data)


def _tell(name: str, snapshot: Snapshot) -> None:
    stream = sys.stderr if name == files.STANDARD_INPUT else sys.stdout
    problems = [
        f"{part.source}: {part.problem}: not in the snapshot"
        for part in snapshot.parts
        if part.problem is not None and not part.absent
    ]
    for text in dict.fromkeys(problems):  # one source may be asked for several parts
        print(f"devicemanager: warning: {clean(text)}", file=sys.stderr)
    read = sum(part.problem is None for part in snapshot.parts)
    absent = [part.name for part in snapshot.parts if part.absent]
    there = f"; not on this node: {', '.join(absent)}" if absent else ""
    shown = f"; `devicemanager snapshot show {name}` shows it"
    line = f"{name}: {read} of {len(snapshot.parts)} parts{there}"
    print(clean(line + ("" if name == files.STANDARD_INPUT else shown)), file=stream)


def _show(args: argparse.Namespace) -> int:
    from devicemanager.cli.snapshot_files import load_snapshot

    with failures(args.output, "snapshot-report", file=args.file):
        snapshot = load_snapshot(args.file)
        from devicemanager.snapshot import report
        from devicemanager.snapshot.node import Node
        from devicemanager.snapshot.rules import Severity, findings

        node = Node(snapshot)
        found = findings(node)
    if args.output == "json":
        print_json("snapshot-report", {"file": args.file, **report.as_data(node, found)})
    else:
        for line in report.lines(node, found):
            print(line)
    return 1 if any(each.severity is not Severity.NOTE for each in found) else 0
