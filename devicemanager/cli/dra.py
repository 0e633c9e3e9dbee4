"""``devicemanager dra``: work with Dynamic Resource Allocation (DRA)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandParser

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_ACTIONS = ("explain", "state", "prepare", "allocate", "validate", "slices", "pools", "claims")
"""The actions, in the order of ``--help``. Each one is a module ``dra_NAME``."""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager dra`` and its actions."""
    parser = subparsers.add_parser(
        "dra",
        help="work with Dynamic Resource Allocation (DRA)",
        description="Work with the DRA drivers of a mock kubelet, and with ResourceSlices, "
        "ResourceClaims and DeviceClasses in files, on an API server or in a mock kubelet.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    for name in _ACTIONS:
        importlib.import_module(f"devicemanager.cli.dra_{name}").add(actions)
