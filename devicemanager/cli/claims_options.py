"""Options of the subcommands that read structured claims from files.

Structured claims belong to the API ``devmgmtproto.k8s.io``, the predecessor of ``resource.k8s.io``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_file, file_name
from devicemanager.cli.options import CommandError, add_repeated

if TYPE_CHECKING:
    from devicemanager.claims.simulated import SimulatedHardware
    from devicemanager.claims.v1alpha1 import objects as v1alpha1
    from devicemanager.cli.offline_claims import OfflineClaims
    from devicemanager.cli.offline_dra import OfflineDra

PATHS = (
    "a file with pools, classes, claims and configs, or a directory of such files; - for "
    "standard input"
)
HARDWARE_FORM = "CARD=COUNT,…"
HARDWARE_EXAMPLE = "gpu=2,nic=1,fpga=2"
_CARDS = ("gpu", "nic", "fpga")
_MAX_CARDS = 1000


def add(parser: argparse.ArgumentParser) -> None:
    """Add ``--claims``, ``--simulate-pools``, ``--state`` and ``--node``."""
    group = parser.add_argument_group("claims")
    add_repeated(
        group,
        "--claims",
        "PATH",
        f"{PATHS}; or with ResourceSlices, DeviceClasses and ResourceClaims of DRA",
        type=file_name,
        dest="claims_paths",
    )
    add_simulated(group)
    add_file(group, "--state", "device_claims_state of a kubelet, with its allocated claims")
    group.add_argument(
        "--node", metavar="NAME", help="name of the node (default: the node of the pools)"
    )


def add_simulated(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option ``--simulate-pools``."""
    parser.add_argument(
        "--simulate-pools",
        type=hardware,
        metavar=HARDWARE_FORM,
        help=f"create pools and classes of virtual hardware, such as {HARDWARE_EXAMPLE}",
    )


def hardware(text: str) -> SimulatedHardware:
    """Return the virtual hardware for a text such as ``gpu=2,nic=1``: the number of GPUs, NICs and
    FPGAs. The text can omit a number that is 0. Raises ArgumentTypeError."""
    counts: dict[str, int] = {}
    for part in text.split(","):
        card, _, count = part.partition("=")
        if card not in _CARDS or not count.isdecimal() or int(count) > _MAX_CARDS:
            raise argparse.ArgumentTypeError(
                f"invalid hardware {part!r}: expected {HARDWARE_EXAMPLE}, with up to"
                f" {_MAX_CARDS} cards of each kind"
            )
        if card in counts:
            raise argparse.ArgumentTypeError(f"duplicate {card} in {text!r}: use it once")
        counts[card] = int(count)
    # Imported here, because other subcommands import this module at every start.
    from devicemanager.claims.simulated import SimulatedHardware

    return SimulatedHardware(**{card: counts.get(card, 0) for card in _CARDS})


def given(args: argparse.Namespace) -> bool:
    """True if an option names structured claims to read."""
    return bool(args.claims_paths) or args.state is not None or args.simulate_pools is not None


def load(args: argparse.Namespace) -> OfflineClaims:
    """Return the structured claims (API ``devmgmtproto.k8s.io``) of ``--claims``,
    ``--simulate-pools`` and ``--state``. Raises CommandError and ClaimsError."""
    from devicemanager.claims.errors import InvalidObject
    from devicemanager.cli.offline_claims import OfflineClaims

    # Without any source, every list would be empty, which would look like a result.
    if not given(args):
        raise CommandError("nothing to read: use --claims, --simulate-pools or --state")
    try:
        return OfflineClaims.load(args.claims_paths, args.state, args.node, args.simulate_pools)
    except InvalidObject as error:
        # An error is one line, so only the first problem is shown; `validate` prints all.
        first, *others = error.lines
        if not others:
            raise
        more = "1 more error" if len(others) == 1 else f"{len(others)} more errors"
        text = f"{first}; and {more}: `devicemanager claims validate` lists them"
        raise CommandError(text) from error


def load_of_pods(args: argparse.Namespace, manifests: Sequence[str]) -> OfflineClaims | OfflineDra:
    """Return the claims in the files of ``--claims``. They belong to one of two APIs.

    For resource.k8s.io, return an OfflineDra with the ResourceClaims. It also has the objects in
    ``manifests``, the files of the pods. For structured claims, return the result of ``load``.

    Raises CommandError, ClaimsError and OSError.
    """
    from devicemanager.cli.offline_dra import OfflineDra, has_dra_objects

    if args.claims_paths and has_dra_objects(args.claims_paths):
        for name in ("state", "simulate_pools"):
            if getattr(args, name) is not None:
                flag = name.replace("_", "-")
                raise CommandError(
                    f"--{flag} is for structured claims: omit it for resource.k8s.io"
                )
        return OfflineDra.load(args.claims_paths, manifests, args.node)
    return load(args)


def read_objects(paths: Sequence[str], hardware: SimulatedHardware | None) -> list[v1alpha1.Object]:
    """Return the structured claims, classes, pools and configs in ``paths``, which are files and
    directories.

    ``hardware`` is the value of ``--simulate-pools``. If it is not None, the pools and classes of
    this virtual hardware are also returned.

    Raises CommandError and ClaimsError.
    """
    from pathlib import Path

    from devicemanager.claims.files import MAX_FILE, in_order, read_paths
    from devicemanager.claims.simulated import simulated_classes
    from devicemanager.cli.files import given_contents

    contents = {Path(name): data for name, data in given_contents(paths, MAX_FILE).items()}
    objects = [each for file in read_paths(map(Path, paths), contents) for each in file.objects]
    if hardware is not None:
        # Any name of a node will do, because these objects are converted and not allocated.
        objects += [*hardware.pools("mock"), *simulated_classes()]
    return in_order(objects)
