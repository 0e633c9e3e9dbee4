"""``devicemanager dra pools``: list the pools that ResourceSlices form."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from devicemanager.cli import dra_files
from devicemanager.cli.dra_slices import nodes
from devicemanager.cli.options import LIST_FORMATS, CommandError, add_format, command
from devicemanager.cli.output import Listing, print_list

if TYPE_CHECKING:
    from devicemanager.cli.dra_files import Object
    from devicemanager.cli.options import Subparsers

_COLUMNS = ("DRIVER", "POOL", "GENERATION", "SLICES", "NODES", "DEVICES")

Pool = dict[str, Any]


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra pools``."""
    parser = command(
        actions,
        "pools",
        _run,
        "list pools, with the number of existing slices",
        description="List the pools of devices. Only slices of a pool's newest generation count. "
        "A scheduler allocates nothing from an incomplete pool.",
    )
    dra_files.add_source(parser)
    add_format(parser, *LIST_FORMATS)


def _run(args: argparse.Namespace) -> int:
    found = pools(dra_files.objects(args, "resourceslices"))

    def listing() -> Listing:
        names = [f"{each['driver']}/{each['name']}" for each in found]
        return Listing(_COLUMNS, [_row(each) for each in found], names)

    print_list(args.output, "dra-pools", {"pools": found}, listing)
    return 0


def pools(slices: list[Object]) -> list[Pool]:
    """Return the pools that slices form, sorted by driver and name.

    Raises CommandError for a generation or a number of slices that is not a whole number.
    """
    groups: dict[tuple[str, str], list[Object]] = {}
    for each in slices:
        spec = each.get("spec") or {}
        named = str(spec.get("driver")), str((spec.get("pool") or {}).get("name"))
        _check_numbers(each)
        groups.setdefault(named, []).append(spec)
    return [_pool(driver, name, groups[driver, name]) for driver, name in sorted(groups)]


def _pool(driver: str, name: str, specs: list[Object]) -> Pool:
    # A driver replaces the slices of a pool one by one. Schedulers ignore the slices of older
    # generations.
    newest = max(_generation(each) for each in specs)
    current = [each for each in specs if _generation(each) == newest]
    wanted = max((each.get("pool") or {}).get("resourceSliceCount", 0) for each in current)
    return {
        "driver": driver,
        "name": name,
        "generation": newest,
        "slices": len(current),
        "slices_wanted": wanted,
        "complete": len(current) == wanted,
        "obsolete_slices": len(specs) - len(current),
        "nodes": sorted({nodes(each) for each in current}),
        "devices": sum(len(each.get("devices") or ()) for each in current),
    }


def _check_numbers(slice_: Object) -> None:
    pool = (slice_.get("spec") or {}).get("pool") or {}
    for field in ("generation", "resourceSliceCount"):
        # Objects in files are not validated, and a text cannot be compared with a number.
        if not isinstance(pool.get(field, 0), int):
            name = (slice_.get("metadata") or {}).get("name")
            raise CommandError(
                f"ResourceSlice {name}: invalid spec.pool.{field} {pool[field]!r}: "
                "use a whole number"
            )


def _generation(spec: Object) -> int:
    return int((spec.get("pool") or {}).get("generation", 0))


def _row(pool: Pool) -> tuple[str, ...]:
    state = "" if pool["complete"] else " (incomplete)"
    return (
        pool["driver"],
        pool["name"],
        str(pool["generation"]),
        f"{pool['slices']}/{pool['slices_wanted']}{state}",
        ",".join(pool["nodes"]),
        str(pool["devices"]),
    )
