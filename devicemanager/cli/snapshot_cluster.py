"""``devicemanager snapshot cluster``: collect the nodes, pods and devices of a cluster."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from devicemanager.cli import files
from devicemanager.cli.files import add_file
from devicemanager.cli.options import add_repeated, command
from devicemanager.cli.output import clean
from devicemanager.cli.snapshot_files import load_snapshot, write_archive
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_DESCRIPTION = """\
Collect the nodes, pods, device claims and quotas of a cluster in one archive, for `devicemanager
fleet`. Only LIST requests are sent. Secrets are not requested, and environment variables,
annotations and configuration of drivers are not in the archive.
"""


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager snapshot cluster``."""
    parser = command(
        actions, "cluster", _take, "collect all nodes of a cluster in one file", _DESCRIPTION
    )
    add_file(
        parser,
        "--kubeconfig",
        "kubeconfig of the cluster (default: KUBECONFIG, ~/.kube/config or the pod's service "
        "account)",
    )
    parser.add_argument("--context", metavar="NAME", help="context in the kubeconfig")
    add_repeated(
        parser,
        "--node-snapshot",
        "FILE",
        "add the archive of `devicemanager snapshot` on a node of the cluster",
    )
    parser.add_argument(
        "-o",
        "--output",
        dest="archive",
        metavar="FILE",
        type=files.file_name,
        help="new file for the archive; - for standard output (default: a name with the time)",
    )


def _take(args: argparse.Namespace) -> int:
    from devicemanager.fleet import collect_fleet, fleet_archive

    # Read first, so that an unreadable file is reported before the requests to the cluster.
    snapshots = {file: load_snapshot(file) for file in args.node_snapshot}
    fleet = collect_fleet(args.kubeconfig, context=args.context, snapshots=snapshots)
    name = args.archive or f"fleet-{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime())}.tar.gz"
    write_archive(name, fleet_archive(fleet))
    for part in fleet.parts:
        # Some kinds of objects can be forbidden to read. The archive is useful without them.
        if part.problem is not None:
            text = f"devicemanager: warning: {part.source}: {part.problem}: not in the archive"
            print(clean(text), file=sys.stderr)
    # Standard output may contain the archive itself.
    stream = sys.stderr if name == files.STANDARD_INPUT else sys.stdout
    counts = f"{counted(len(fleet.nodes), 'node')}, {counted(len(fleet.all('pods')), 'pod')}"
    if snapshots:
        counts += f", {counted(len(snapshots), 'node snapshot')}"
    print(clean(f"{name}: {counts}; to show them: devicemanager fleet show {name}"), file=stream)
    return 0
