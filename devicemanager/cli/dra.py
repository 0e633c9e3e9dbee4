"""``devicemanager dra``: work with Dynamic Resource Allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.cli import dra_allocate, dra_explain, dra_state
from devicemanager.cli.options import CommandParser

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager dra`` and its actions."""
    parser = subparsers.add_parser(
        "dra",
        help="allocate claims of resource.k8s.io, and explain pods that wait for them",
        description="Work with ResourceSlices, DeviceClasses and ResourceClaims of "
        "resource.k8s.io in YAML or JSON files, and with the DRA drivers of a mock kubelet.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    dra_allocate.add(actions)
    dra_explain.add(actions)
    dra_state.add(actions)
