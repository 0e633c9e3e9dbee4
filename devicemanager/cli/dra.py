"""``devicemanager dra``: work with Dynamic Resource Allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.cli import dra_explain, dra_state
from devicemanager.cli.options import CommandParser

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager dra`` and its actions."""
    parser = subparsers.add_parser(
        "dra",
        help="work with Dynamic Resource Allocation (DRA)",
        description="Work with DRA drivers and ResourceClaims of resource.k8s.io.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    dra_explain.add(actions)
    dra_state.add(actions)
