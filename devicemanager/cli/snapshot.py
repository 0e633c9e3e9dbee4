"""``devicemanager snapshot``: collect a node's device state in one archive, and show problems."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import files, snapshot_cluster
from devicemanager.cli.files import add_directory, add_file
from devicemanager.cli.options import CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json
from devicemanager.cli.snapshot_files import load_snapshot, write_archive

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.snapshot import Snapshot

_DESCRIPTION = """\
Collect what a node knows about its devices in one archive. Nothing is changed: files are read,
two PodResources calls are made, and each socket is connected to and closed at once. Parts that
cannot be read are named, here and in the archive.
"""
_EPILOG = """\
examples:
  %(prog)s -o node.tar.gz                 on the node
  %(prog)s --host /host -o node.tar.gz    where the node's file system is mounted at /host
  %(prog)s --root ./node -o node.tar.gz   for a mock kubelet
  %(prog)s show node.tar.gz               anywhere
  %(prog)s cluster -o fleet.tar.gz        where a kubeconfig is
"""


def add(subparsers: Subparsers) -> None:
    """Add the commands ``devicemanager snapshot`` and ``devicemanager snapshot show``."""
    parser = command(
        subparsers, "snapshot", _take, "collect a node's device state in one file", _DESCRIPTION
    )
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    usages = ("[options]", "show FILE [-o text|json]", "cluster [options]")
    parser.usage = "\n       ".join(f"%(prog)s {each}" for each in usages)
    parser.add_argument(
        "-o",
        "--output",
        dest="archive",
        metavar="FILE",
        type=files.file_name,
        help="new file for the archive; - for standard output (default: a name with the node's "
        "name and the time)",
    )
    _add_places(parser)
    # prog is explicit, because the usage of an action would otherwise begin with the usage above.
    actions = parser.add_subparsers(metavar="ACTION", prog=parser.prog, parser_class=CommandParser)
    show = command(
        actions,
        "show",
        _show,
        "list problems and fixes; exit status 0 if there are none, else 1",
    )
    add_file(show, "file", "snapshot archive; - for standard input")
    add_format(show, "text", "json")
    snapshot_cluster.add(actions)


def _add_places(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("paths on this machine")
    add_directory(group, "--host", "root of the node's file system (default: /)", default="/")
    add_directory(
        group,
        "--root",
        "directory of the kubelet, for example of a mock kubelet (default: that of the "
        "running kubelet, or var/lib/kubelet)",
    )
    add_directory(
        group,
        "--plugin-dir",
        "directory where plugins register (default: var/lib/kubelet/device-plugins; with "
        "--root, device-plugins in it)",
    )
    add_file(
        group,
        "--kubelet-config",
        "configuration file of the kubelet (default: that of the running kubelet, or "
        "config.yaml in its directory)",
    )


def _take(args: argparse.Namespace) -> int:
    from devicemanager.snapshot import Places, archive, collect

    # Absolute, because the archive contains the paths and is read elsewhere.
    root, plugin_dir, config = (
        None if each is None else Path(each).absolute()
        for each in (args.root, args.plugin_dir, args.kubelet_config)
    )
    # If a part cannot be read, the other parts are still collected.
    snapshot = collect(Places.find(Path(args.host), root, plugin_dir, config))
    name = args.archive or _name(snapshot)
    write_archive(name, archive(snapshot))
    _print_summary(name, snapshot)
    return 0


def _name(snapshot: Snapshot) -> str:
    node = "".join(each if each.isalnum() or each in "-." else "-" for each in snapshot.node)
    return f"snapshot-{node}-{snapshot.taken.replace(':', '')}.tar.gz"


def _print_summary(name: str, snapshot: Snapshot) -> None:
    # Standard output may contain the archive itself.
    stream = sys.stderr if name == files.STANDARD_INPUT else sys.stdout
    problems = [
        f"{part.source}: {part.problem}: not in the snapshot"
        for part in snapshot.parts
        if part.problem is not None and not part.absent
    ]
    for text in dict.fromkeys(problems):  # several parts may have the same source
        print(f"devicemanager: warning: {clean(text)}", file=sys.stderr)
    read = sum(part.problem is None for part in snapshot.parts)
    absent = [part.name for part in snapshot.parts if part.absent]
    line = f"{name}: {read} of {len(snapshot.parts)} parts"
    if absent:
        line += f"; not on this node: {', '.join(absent)}"
    if name != files.STANDARD_INPUT:
        line += f"; to show the snapshot: devicemanager snapshot show {name}"
    print(clean(line), file=stream)


def _show(args: argparse.Namespace) -> int:
    with failures(args.output, "snapshot-report", file=args.file):
        # Read first, because this reports a missing extra that the imports below need.
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
