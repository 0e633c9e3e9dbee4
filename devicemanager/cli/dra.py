"""``devicemanager dra``: objects of Dynamic Resource Allocation, in files and on an API server."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandParser

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_ACTIONS = ("allocate", "validate", "slices", "pools", "claims")
"""The actions, in the order of ``--help``. Each one is a module ``dra_NAME``."""


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager dra`` and its actions."""
    parser = subparsers.add_parser(
        "dra",
        help="allocate claims of resource.k8s.io, validate and list objects",
        description="Work with ResourceSlices, ResourceClaims and DeviceClasses in YAML or JSON "
        "files, or on an API server.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    for name in _ACTIONS:
        importlib.import_module(f"devicemanager.cli.dra_{name}").add(actions)
