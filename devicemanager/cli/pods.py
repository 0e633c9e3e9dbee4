"""``devicemanager pods``: show the pods of a real or mock kubelet, with their devices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_socket, check_socket
from devicemanager.cli.options import LIST_FORMATS, add_format, command
from devicemanager.cli.output import Listing, ids_text, nodes_text, print_list

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from podresources import Container, ContainerDevices, ContainerMemory, Pod

COLUMNS = ("NAMESPACE", "POD", "CONTAINER", "RESOURCE", "COUNT", "DEVICES", "NUMA")

Row = tuple[str, str, str, str]
"""Cells of a table row: resource, count, device IDs, NUMA nodes."""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager pods`` and its options."""
    parser = command(subparsers, "pods", _run, "show the pods of a kubelet and their devices")
    add_socket(parser)
    add_format(parser, *LIST_FORMATS)


def _run(args: argparse.Namespace) -> int:
    from podresources import PodResourcesClient
    from podresources.rendering import pod_data

    check_socket(args.socket)
    # Retries, because all clients of a kubelet share its rate limit.
    with PodResourcesClient(args.socket, rate_limit_attempts=8) as client:
        pods = sorted(client.list(), key=lambda pod: (pod.namespace, pod.name))
    data = {"pod_resources": [pod_data(pod) for pod in pods]}
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    print_list(args.output, "pods", data, lambda: Listing(COLUMNS, list(rows(pods)), names))
    return 0


def rows(pods: Sequence[Pod]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of pods, one or more per container."""
    for pod in pods:
        for container in pod.containers:
            head = (pod.namespace, pod.name, container.name)
            # A container without devices also gets a row.
            cells = list(_allocated(container)) or [("-", "0", "-", "-")]
            yield from (head + row for row in cells)


def _allocated(container: Container) -> Iterator[Row]:
    yield from device_rows(container.devices)
    yield from amount_rows(container.cpu_ids, container.memory)
    # DRA claims have no resource name, so the claim is shown in its column.
    for claim in container.dynamic_resources:
        names = [f"{each.pool_name}/{each.device_name}" for each in claim.claim_resources]
        owner = f"claim {claim.claim_namespace}/{claim.claim_name}"
        yield owner, str(len(names)), ids_text(names), "-"


def device_rows(devices: Sequence[ContainerDevices]) -> Iterator[Row]:
    """Yield one row for each resource, with the IDs of its devices. No ID is repeated in a row."""
    from podresources import ids_by_resource

    for resource, ids in sorted(ids_by_resource(devices).items()):
        # A resource can have one entry per NUMA node. The row shows all NUMA nodes.
        nodes = (node for each in devices if each.resource_name == resource for node in each.nodes)
        yield resource, str(len(ids)), ids_text(sorted(ids)), nodes_text(nodes)


def amount_rows(cpu_ids: Sequence[int], memory: Sequence[ContainerMemory]) -> Iterator[Row]:
    """Yield a row for exclusive CPUs, and a row for each memory block with its size in bytes."""
    if cpu_ids:
        yield "cpu", str(len(cpu_ids)), ids_text(map(str, sorted(cpu_ids))), "-"
    for block in memory:
        yield block.memory_type, str(block.size), "-", nodes_text(block.nodes)
