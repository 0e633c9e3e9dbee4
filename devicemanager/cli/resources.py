"""``devicemanager resources``: show the allocatable resources of a node and how many are in use."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_socket, check_socket
from devicemanager.cli.options import LIST_FORMATS, add_format, command
from devicemanager.cli.output import Listing, ids_text, nodes_text, print_list
from devicemanager.cli.pods import amount_rows

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from podresources import Allocatable, Pod

COLUMNS = ("RESOURCE", "ALLOCATABLE", "IN USE", "FREE", "DEVICES", "NUMA")


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager resources`` and its options."""
    parser = command(subparsers, "resources", _run, "show the allocatable resources of a kubelet")
    add_socket(parser)
    add_format(parser, *LIST_FORMATS)


def _run(args: argparse.Namespace) -> int:
    from podresources import PodResourcesClient
    from podresources.rendering import allocatable_data

    check_socket(args.socket)
    # Retries, because all clients of a kubelet share its rate limit.
    with PodResourcesClient(args.socket, rate_limit_attempts=8) as client:
        allocatable = client.get_allocatable()

        def listing() -> Listing:
            found = list(rows(allocatable, client.list()))
            return Listing(COLUMNS, found, [row[0] for row in found])

        print_list(args.output, "resources", allocatable_data(allocatable), listing)
    return 0


def rows(allocatable: Allocatable, pods: Sequence[Pod]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, with one cell for each of ``COLUMNS``.

    Extended resources come first, then exclusive CPUs, then memory blocks.
    """
    from podresources import ids_by_resource

    containers = [container for pod in pods for container in pod.containers]
    offered = ids_by_resource(allocatable.devices)
    used = ids_by_resource([devices for each in containers for devices in each.devices])
    # Devices in use are included, because a resource without healthy devices can be in use.
    for resource in sorted({*offered, *used}):
        ids, taken = set(offered.get(resource, ())), set(used.get(resource, ()))
        nodes = [
            node
            for each in allocatable.devices
            if each.resource_name == resource
            for node in each.nodes
        ]
        # Devices in use can be unhealthy; they are then not allocatable.
        counts = (str(len(ids)), str(len(taken)), str(len(ids - taken)))
        yield resource, *counts, ids_text(sorted(ids)), nodes_text(nodes)
    for resource, count, ids_cell, nodes_cell in amount_rows(
        allocatable.cpu_ids, allocatable.memory
    ):
        yield resource, count, "-", "-", ids_cell, nodes_cell
