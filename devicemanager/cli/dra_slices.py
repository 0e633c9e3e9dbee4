"""``devicemanager dra slices``: list ResourceSlices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli import dra_files
from devicemanager.cli.options import LIST_FORMATS, add_format, command
from devicemanager.cli.output import Listing, print_list

if TYPE_CHECKING:
    from devicemanager.cli.dra_files import Object
    from devicemanager.cli.options import Subparsers

_COLUMNS = ("NAME", "DRIVER", "POOL", "GENERATION", "NODES", "DEVICES")


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra slices``."""
    parser = command(actions, "slices", _run, "list ResourceSlices and their devices")
    dra_files.add_source(parser)
    add_format(parser, *LIST_FORMATS)


def _run(args: argparse.Namespace) -> int:
    found = sorted(dra_files.objects(args, "resourceslices"), key=_name)

    def listing() -> Listing:
        devices = [", ".join(_devices(each)) or "-" for each in found]
        rows, names = [_row(each) for each in found], [_name(each) for each in found]
        return Listing(_COLUMNS, rows, names, [("DEVICE NAMES", devices)])

    print_list(args.output, "dra-slices", {"slices": found}, listing)
    return 0


def _name(value: Object) -> str:
    metadata = value.get("metadata") or {}
    # A manifest can have only generateName, because the API server creates the name.
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _row(value: Object) -> tuple[str, ...]:
    spec = value.get("spec") or {}
    pool = spec.get("pool") or {}
    # The API server allows only one of devices and shared counters in a slice.
    count = len(_devices(value)) or f"{len(spec.get('sharedCounters') or ())} counter sets"
    cells = (spec.get("driver"), pool.get("name"), pool.get("generation", 0), nodes(spec), count)
    return _name(value), *map(str, cells)


def _devices(value: Object) -> list[str]:
    return [str(each.get("name")) for each in (value.get("spec") or {}).get("devices") or ()]


def nodes(spec: Object) -> str:
    """Return a text for the nodes that have access to the devices of a slice.

    ``spec`` is the slice's spec, and its fields determine the text. ``nodeName``: the name of the
    node. ``nodeSelector``: ``selector``. ``allNodes``: ``all``. ``perDeviceNodeSelection``:
    ``per device``. None of these fields: ``-``.
    """
    if name := spec.get("nodeName"):
        return str(name)
    names = {"nodeSelector": "selector", "allNodes": "all", "perDeviceNodeSelection": "per device"}
    return next((text for field, text in names.items() if spec.get(field)), "-")
