"""``devicemanager claims``: validate, show and explain structured claims without a kubelet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from devicemanager.cli import claims_options
from devicemanager.cli.files import add_file
from devicemanager.cli.options import (
    LIST_FORMATS,
    CommandError,
    CommandParser,
    add_format,
    add_repeated,
    command,
)
from devicemanager.cli.output import (
    Listing,
    clean,
    ids_text,
    lines_of,
    print_documents,
    print_json,
    print_list,
    print_yaml,
)

if TYPE_CHECKING:
    from devicemanager.claims.v1alpha1.objects import DeviceAllocation, DeviceClaim
    from devicemanager.cli.offline_claims import OfflineClaims
    from devicemanager.cli.options import Subparsers

_EPILOG = """\
example with virtual hardware:
  devicemanager claims explain train --claims claims.yaml --simulate-pools gpu=2,nic=1

A kubelet stores its allocated claims in device_claims_state, in its directory. Read that file
with --state.
"""


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager claims`` and its actions."""
    parser = subparsers.add_parser(
        "claims",
        help="validate, show and explain structured claims",
        description="Work with pools of devices, classes and claims of "
        "devmgmtproto.k8s.io/v1alpha1 in YAML or JSON files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    _add_reading(actions)
    _add_explain(actions)
    _add_simulate(actions)
    convert = command(
        actions,
        "convert",
        _convert,
        "write the objects of resource.k8s.io for structured claims",
        description="Write ResourceSlices, DeviceClasses and ResourceClaims as YAML for the "
        "pools, classes and claims in files. Notes on standard error name what has no equivalent.",
    )
    add_file(convert, "paths", claims_options.PATHS, nargs="*", metavar="PATH")
    claims_options.add_simulated(convert)


def _add_reading(actions: Subparsers) -> None:
    validate = command(
        actions,
        "validate",
        _validate,
        "validate files; exit status 0 if all are valid, else 1",
    )
    add_file(validate, "paths", claims_options.PATHS, nargs="+", metavar="PATH")
    claims_options.add_simulated(validate)
    add_format(validate, "text", "json")
    listing = command(actions, "list", _list, "list claims and their devices")
    claims_options.add(listing)
    add_format(listing, *LIST_FORMATS)
    pools = command(actions, "pools", _pools, "list pools and their devices in use")
    claims_options.add(pools)
    add_format(pools, *LIST_FORMATS)
    show = command(actions, "show", _show, "show one claim")
    show.add_argument("claim", metavar="CLAIM", help="a claim: NAME or NAMESPACE/NAME")
    claims_options.add(show)
    add_format(show, "yaml", "json")


def _add_explain(actions: Subparsers) -> None:
    explain = command(
        actions,
        "explain",
        _explain,
        "explain why claims get their devices or do not fit",
        description="Explain the claims of one pod together. For each device that they do not "
        "get, show the first rule that excludes it. The exit status is 0 if they fit, 1 if they do "
        "not fit, and 3 if the search reached its limits.",
    )
    explain.add_argument(
        "names", nargs="+", metavar="CLAIM", help="a claim: NAME or NAMESPACE/NAME"
    )
    add_repeated(explain, "--after", "CLAIM", "allocate this claim first")
    claims_options.add(explain)
    add_format(explain, "text", "json")


def _add_simulate(actions: Subparsers) -> None:
    simulate = command(
        actions, "simulate", _simulate, "print pools and classes of virtual hardware as YAML"
    )
    simulate.add_argument(
        "hardware",
        nargs="?",
        type=claims_options.hardware,
        default=claims_options.HARDWARE_EXAMPLE,
        metavar=claims_options.HARDWARE_FORM,
        help="number of cards of each kind (default: %(default)s)",
    )
    simulate.add_argument("--node", default="mock", help="name of the node (default: %(default)s)")


# --- validate


def _validate(args: argparse.Namespace) -> int:
    from devicemanager.claims.errors import InvalidObject
    from devicemanager.cli.offline_claims import OfflineClaims, missing_references

    # Errors in files are the result of this command, not a failure of it.
    problems: Sequence[str] = ()
    notes: list[str] = []
    count = 0
    try:
        # The node is not set, because files with the pools of several nodes are valid.
        offline = OfflineClaims.load(args.paths, node="", hardware=args.simulate_pools)
    except InvalidObject as error:
        problems = error.lines
    else:
        # Files of other kinds are probably a mistake, which "0 objects are valid" would hide.
        count = offline.given
        if not count:
            where = ", ".join(args.paths)
            raise CommandError(
                f"{where}: no pools, classes, claims or configs to validate: name other files"
            )
        notes = list(missing_references(offline.allocator))
    if args.output == "json":
        facts = {"valid": not problems, "problems": list(problems), "notes": notes}
        print_json("claims-validate", facts)
    else:
        valid = "1 object is valid" if count == 1 else f"{count} objects are valid"
        for line in problems or [valid]:
            print(clean(line))
        for line in notes:
            print(f"note: {clean(line)}")
    return 1 if problems else 0


# --- list, pools and show


def _list(args: argparse.Namespace) -> int:
    offline = claims_options.load(args)
    claims = [claim for _, claim in sorted(offline.allocator.claims.items())]
    data = [_claim_data(offline, each) for each in claims]

    def listing() -> Listing:
        rows = [_row(offline, each) for each in claims]
        cdi = [
            ids_text(id_ for one in each["cdi_devices"] for id_ in one["cdi_devices"])
            for each in data
        ]
        columns, names = ("CLAIM", "PHASE", "DEVICES", "PODS"), [each.id for each in claims]
        return Listing(columns, rows, names, [("CDI DEVICES", cdi)])

    print_list(args.output, "claims", {"claims": data}, listing)
    return 0


def _row(offline: OfflineClaims, claim: DeviceClaim) -> tuple[str, ...]:
    record = offline.records.get(claim.id)
    devices = ids_text(map(_device_text, claim.status.allocations))
    pods = ids_text(sorted(record.users.values())) if record else "-"
    return claim.id, offline.phase(claim.id), devices, pods


def _device_text(allocation: DeviceAllocation) -> str:
    name = f"{allocation.device_pool_name}/{allocation.device_name}"
    parts = [f"{each.name} {each.allocation}" for each in allocation.allocations]
    return f"{name} ({', '.join(parts)})" if parts else name


def _claim_data(offline: OfflineClaims, claim: DeviceClaim) -> dict[str, Any]:
    from devicemanager.claims.v1alpha1.writing import write_object

    record = offline.records.get(claim.id)
    return {
        "claim": claim.id,
        "phase": offline.phase(claim.id),
        "object": write_object(claim),
        "pods": dict(record.users) if record else {},
        "cdi_devices": _cdi(record.prepared) if record else [],
        "deleted": bool(record and record.is_deleted),
    }


def _cdi(prepared: Any) -> list[dict[str, object]]:
    return [
        {"driver": key.driver, "pool": key.pool, "device": key.name, "cdi_devices": list(ids)}
        for key, ids in sorted(prepared.items())
    ]


def _show(args: argparse.Namespace) -> int:
    offline = claims_options.load(args)
    (name,) = offline.ids([args.claim])
    data = _claim_data(offline, offline.allocator.claim(name))
    if args.output == "json":
        print_json("claim", data)
        return 0
    print_yaml(data.pop("object"))
    for key in ("phase", "pods", "cdi_devices"):
        if data[key]:
            # Comments, so that the output is still a valid file for --claims.
            print(f"# {key}: {clean(str(data[key]))}")
    return 0


def _pools(args: argparse.Namespace) -> int:
    offline = claims_options.load(args)
    rows = list(_pool_data(offline))
    columns = ("POOL", "DRIVER", "DEVICES", "IN USE", "BUDGET")

    def listing() -> Listing:
        return Listing(columns, [_pool_row(each) for each in rows], [each["pool"] for each in rows])

    print_list(args.output, "claims-pools", {"node": offline.node, "pools": rows}, listing)
    return 0


def _pool_data(offline: OfflineClaims) -> Iterator[dict[str, Any]]:
    from devicemanager.core.quantity import Quantity

    store, ledger = offline.allocator.store, offline.allocator.ledger
    for pool in store.constraints(offline.node).inventory.pools:
        published = {each.name: each.capacity for each in store.pools[pool.key.name].resources}
        charged = ledger.charged(pool.key)
        yield {
            "pool": pool.key.name,
            "driver": pool.key.driver,
            "devices": len(pool.devices),
            "in_use": [
                f"{device.key.name}: {', '.join(ledger.claims_using(device.key))}"
                for device in pool.devices
                if ledger.claims_using(device.key)
            ],
            "budget": {
                name: {
                    "used": str(Quantity(charged.get(name, 0), capacity.format)),
                    "capacity": str(capacity),
                }
                for name, capacity in published.items()
            },
        }


def _pool_row(pool: dict[str, Any]) -> tuple[str, ...]:
    budget = [f"{name} {each['used']}/{each['capacity']}" for name, each in pool["budget"].items()]
    used, count = "; ".join(pool["in_use"]) or "-", str(pool["devices"])
    return pool["pool"], pool["driver"], count, used, ", ".join(budget) or "-"


# --- explain and simulate


_STATUS = {True: 0, False: 1, None: 3}
"""Exit status by result; None means that the search reached its limits without a result."""


def _explain(args: argparse.Namespace) -> int:
    offline = claims_options.load(args)
    # Allocated in the given order, as a kubelet would admit the pods.
    for before in offline.ids(args.after):
        offline.allocator.allocate([before], offline.node)
    names = offline.ids(args.names)
    explanation = offline.allocator.explain(names, offline.node)
    if explanation.fits:
        # Also fails for reasons other than devices, such as a config that does not exist.
        offline.allocator.allocate(names, offline.node)
    if args.output == "json":
        print_json("claims-explain", explanation.as_dict())
    else:
        for line in lines_of(explanation.text()):
            print(line)
    return _STATUS[explanation.fits]


def _convert(args: argparse.Namespace) -> int:
    from devicemanager.claims.dra.conversion import convert

    objects = claims_options.read_objects(args.paths, args.simulate_pools)
    if not objects:
        raise CommandError(
            "no pools, classes, claims or configs to convert: name a file with some, or use "
            "--simulate-pools"
        )
    found = convert(objects)
    print_documents(found.objects)
    for note in found.notes:
        # On standard error, because users redirect the YAML to a file.
        print(f"note: {clean(note)}", file=sys.stderr)
    return 0


def _simulate(args: argparse.Namespace) -> int:
    from devicemanager.claims.simulated import simulated_classes
    from devicemanager.claims.v1alpha1.writing import to_yaml

    print(to_yaml([*args.hardware.pools(args.node), *simulated_classes()]), end="")
    return 0
