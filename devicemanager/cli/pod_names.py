"""Names for the UIDs of a checkpoint: from a snapshot, a kubelet or ``kubectl``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.files import check_socket, file_name, read_file

if TYPE_CHECKING:
    from checkpoint import Checkpoint
    from devicemanager.cli.checkpoint_files import CheckpointFile
    from devicemanager.snapshot.names import Names

_MAX_PODS = 256 << 20


def add(parser: argparse.ArgumentParser) -> None:
    """Options that say who knows the names; at most one may be given."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--snapshot",
        metavar="FILE",
        type=file_name,
        help="name pods as this snapshot of the node knows them",
    )
    group.add_argument(
        "--socket",
        metavar="PATH",
        type=file_name,
        help="name pods as this PodResources socket knows them: by what their containers hold",
    )
    group.add_argument(
        "--pods",
        metavar="FILE",
        type=file_name,
        help="name pods as in what `kubectl get pods --all-namespaces -o json` prints; - for "
        "standard input",
    )


def names(args: argparse.Namespace, file: CheckpointFile, saved: Checkpoint) -> Names:
    """UID to ``namespace/name``, as far as they are known. Raises CommandError, SnapshotError
    and PodResourcesError."""
    from devicemanager.snapshot.names import from_kubectl

    if args.pods is not None:
        return from_kubectl(read_file(args.pods, _MAX_PODS), args.pods)
    if args.socket is not None:
        return _from_socket(args.socket, saved)
    snapshot = file.snapshot
    if args.snapshot is not None:
        from devicemanager.cli.snapshot import load_snapshot

        snapshot = load_snapshot(args.snapshot)
    if snapshot is None:
        return {}
    from devicemanager.snapshot.node import Node

    return Node(snapshot).names_in(saved)


def _from_socket(socket: str, saved: Checkpoint) -> Names:
    from devicemanager.snapshot.names import from_pod_resources
    from podresources import PodResourcesClient

    check_socket(socket)
    with PodResourcesClient(socket, rate_limit_attempts=8) as client:
        return from_pod_resources(saved, client.list())
