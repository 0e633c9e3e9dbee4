"""``devicemanager dra allocate``: allocate claims as the scheduler does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devicemanager.cli import dra_files
from devicemanager.cli.options import CommandError, add_format, add_repeated, command
from devicemanager.cli.output import clean, print_documents, print_json, print_table

if TYPE_CHECKING:
    from devicemanager.claims.dra import AllocationResult, Profile
    from devicemanager.cli.dra_files import Object
    from devicemanager.cli.dra_objects import DraObjects
    from devicemanager.cli.options import Subparsers

_NO_FIT, _UNDECIDED = 1, 3


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra allocate``."""
    parser = command(
        actions,
        "allocate",
        _allocate,
        "allocate claims on a node as the scheduler does",
        description="Allocate claims together on one node, as the scheduler does for the claims "
        "of one pod. Claims with an allocation in their status keep their devices. The exit "
        "status is 0 if the claims fit, 1 if they do not fit, and 3 if the search has reached its "
        "step limit without a result.",
    )
    dra_files.add_source(parser)
    add_repeated(parser, "--claim", "CLAIM", "allocate only this claim: NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--node", metavar="NAME", help="name of the node (default: the only node of the objects)"
    )
    parser.add_argument(
        "--kubelet-version",
        default=None,
        metavar="VERSION",
        help="version of the scheduler: 1.37 (default), 1.36 or 1.34",
    )
    add_repeated(parser, "--feature-gate", "GATE", "enable only the named gates of the allocator")
    add_repeated(parser, "--quirk", "QUIRK", "enable a bug of the original allocator by name")
    add_format(parser, "table", "yaml", "json")


def _allocate(args: argparse.Namespace) -> int:
    from devicemanager.claims.dra import Allocator, InUse, InvalidPools
    from devicemanager.claims.errors import TryAgain
    from devicemanager.cli.dra_objects import DraObjects

    objects = DraObjects.load(args)
    node = objects.node(args.node)
    claims = _wanted(objects, args.claim)
    try:
        allocator = Allocator(objects.slices, objects.classes, profile=_profile(args))
        # From all claims, because a claim that is not named also keeps its devices.
        in_use = InUse.of(objects.claims)
        try:
            results = allocator.allocate(claims, node, in_use)
        # With an invalid pool, the claims can still fit on another node, so this is not an error.
        except InvalidPools:
            results = None
        if results is None:
            names = ", ".join(map(_name, claims))
            print(f"{names}: not enough devices on node {node.name}")
            for line in allocator.explain(claims, node, in_use):
                print(clean(line))
            return _NO_FIT
    except TryAgain as error:
        print(error)
        return _UNDECIDED
    _print(args.output, claims, results)
    return 0


def _profile(args: argparse.Namespace) -> Profile:
    from devicemanager.claims.dra import Profile

    try:
        # None stands for the defaults of the version; an empty list would disable all gates and
        # quirks.
        return Profile.of(
            args.kubelet_version, features=args.feature_gate or None, quirks=args.quirk or None
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _wanted(objects: DraObjects, names: Sequence[str]) -> list[Object]:
    """Return the named claims, or all claims that are not allocated. Raises CommandError for a name
    that is unknown or allocated."""
    if not names:
        found = [
            each
            for each in objects.candidates()
            if not (each.get("status") or {}).get("allocation")
        ]
        if not found:
            raise CommandError("no unallocated ResourceClaim among the objects: add one")
        return found
    known = {_name(each): each for each in objects.candidates()}
    found = []
    for name in names:
        # As with kubectl, a name without a namespace is in the namespace ``default``.
        full = name if "/" in name else f"default/{name}"
        if full not in known:
            raise CommandError(f"no ResourceClaim {full} among the objects: check its name")
        # The scheduler keeps the devices of an allocated claim. A second allocation would find them
        # in use.
        if (known[full].get("status") or {}).get("allocation"):
            raise CommandError(f"ResourceClaim {full} is already allocated: remove its status")
        found.append(known[full])
    return found


def _name(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _print(output: str, claims: Sequence[Object], results: Sequence[AllocationResult]) -> None:
    # Complete objects, so that the output can be the input of the next call, as claims in use.
    changed = [
        {**claim, "status": {**(claim.get("status") or {}), "allocation": dict(result)}}
        for claim, result in zip(claims, results, strict=True)
    ]
    if output == "json":
        print_json("dra-allocate", {"claims": changed})
    elif output == "yaml":
        print_documents(changed)
    else:
        columns = ("CLAIM", "REQUEST", "DEVICE", "SHARE")
        print_table(columns, [row for each in changed for row in _rows(each)])


def _rows(claim: Object) -> list[tuple[str, ...]]:
    results: list[dict[str, Any]] = claim["status"]["allocation"]["devices"].get("results", [])
    return [
        (
            _name(claim),
            each["request"],
            f"{each['driver']}/{each['pool']}/{each['device']}",
            _share(each),
        )
        for each in results
    ]


def _share(result: dict[str, Any]) -> str:
    consumed = result.get("consumedCapacity") or {}
    amounts = ", ".join(f"{name} {amount}" for name, amount in consumed.items())
    return amounts or ("admin access" if result.get("adminAccess") else "-")
