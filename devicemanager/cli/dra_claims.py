"""``devicemanager dra claims``: list ResourceClaims and their devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from devicemanager.cli import dra_files
from devicemanager.cli.options import LIST_FORMATS, add_format, command
from devicemanager.cli.output import Listing, print_list

if TYPE_CHECKING:
    from devicemanager.cli.dra_files import Object
    from devicemanager.cli.options import Subparsers

_COLUMNS = ("NAMESPACE", "CLAIM", "STATE", "DEVICES", "RESERVED FOR")


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra claims``."""
    parser = command(actions, "claims", _run, "list ResourceClaims and their devices")
    dra_files.add_source(parser)
    add_format(parser, *LIST_FORMATS)


def _run(args: argparse.Namespace) -> int:
    found = sorted(dra_files.objects(args, "resourceclaims"), key=_named)

    def listing() -> Listing:
        names = ["/".join(_named(each)) for each in found]
        return Listing(_COLUMNS, [_row(each) for each in found], names)

    print_list(args.output, "dra-claims", {"claims": found}, listing)
    return 0


def _named(value: Object) -> tuple[str, str]:
    metadata = value.get("metadata") or {}
    # A manifest can have only generateName, because the API server creates the name.
    name = metadata.get("name") or metadata.get("generateName") or ""
    # A manifest without a namespace is for the namespace ``default``, as with kubectl.
    return str(metadata.get("namespace") or "default"), str(name)


def _row(value: Object) -> tuple[str, ...]:
    status = value.get("status") or {}
    users = [str(each.get("name")) for each in status.get("reservedFor") or ()]
    devices = [_device(each) for each in _results(status)]
    cells = (_state(value, status), ", ".join(devices) or "-", ", ".join(users) or "-")
    return *_named(value), *cells


def _results(status: Object) -> list[Any]:
    allocation = status.get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _device(result: Object) -> str:
    named = "/".join(str(result.get(each, "")) for each in ("driver", "pool", "device"))
    return f"{result.get('request', '')}={named}"


def _state(value: Object, status: Object) -> str:
    """Return the state of a claim in the words of kubectl, such as ``allocated,reserved``."""
    states = []
    if (value.get("metadata") or {}).get("deletionTimestamp"):
        states.append("deleted")
    if status.get("allocation") is None:
        states.append("pending")
    else:
        states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)
