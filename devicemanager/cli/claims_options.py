"""What subcommands that read structured claims from files have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli import hardware_option
from devicemanager.cli.files import file_name
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from devicemanager.cli.offline_claims import OfflineClaims

PATHS = (
    "a file of pools, classes, claims and configs, or a directory of such files; - for standard "
    "input"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("structured claims")
    group.add_argument(
        "--claims",
        action="append",
        default=[],
        metavar="PATH",
        type=file_name,
        dest="claims_paths",
        help=f"{PATHS}; may be repeated",
    )
    add_simulated(group)
    group.add_argument(
        "--state",
        metavar="FILE",
        type=file_name,
        help="a kubelet's device_claims_state: who holds what",
    )
    group.add_argument(
        "--node", metavar="NAME", help="the node (default: the one that the pools name)"
    )


def add_simulated(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option for virtual hardware alone."""
    parser.add_argument(
        "--simulate-pools",
        type=hardware_option.hardware_option,
        metavar=hardware_option.FORM,
        help="also pools and classes of virtual hardware, such as " + hardware_option.EXAMPLE,
    )


def given(args: argparse.Namespace) -> bool:
    """Whether there is anything to read."""
    return bool(args.claims_paths) or args.state is not None or args.simulate_pools is not None


def load(args: argparse.Namespace) -> OfflineClaims:
    """Read all of it. Raises CommandError and ClaimsError."""
    from devicemanager.claims.errors import InvalidObject
    from devicemanager.cli.offline_claims import OfflineClaims

    if not given(args):
        raise CommandError("nothing to read: give --claims, --simulate-pools or --state")
    try:
        return OfflineClaims.load(args.claims_paths, args.state, args.node, args.simulate_pools)
    except InvalidObject as error:
        first, *others = error.lines
        if not others:
            raise
        more = "another fault" if len(others) == 1 else f"{len(others)} more faults"
        text = f"{first}; and {more}: `devicemanager claims validate` lists them"
        raise CommandError(text) from error
