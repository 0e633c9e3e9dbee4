"""The flags for fault injection: ``--fault``, ``--faults``, ``--fault-seed`` and ``--chaos``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_file
from devicemanager.cli.options import CommandError, add_repeated
from devicemanager.cli.settings_options import number

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.faults import Fault
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["add_faults", "set_faults", "start_chaos"]


def add_faults(parser: argparse.ArgumentParser) -> None:
    """Add the flags for fault injection to a parser. docs/faults.md describes them."""
    group = parser.add_argument_group("faults")
    add_repeated(
        group,
        "--fault",
        "KIND[:NAME=VALUE,...]",
        "inject a fault, such as reject-register:code=UNAVAILABLE,times=2; an unknown kind "
        "lists all kinds",
        type=_fault,
        dest="faults",
    )
    add_file(
        group,
        "--faults",
        "inject the faults in a YAML or JSON file: a list of faults, or a mapping with `seed` and "
        "`faults`",
        dest="fault_file",
    )
    group.add_argument(
        "--fault-seed",
        metavar="N",
        type=number(int, least=0),
        help="seed for faults with a probability (default: the seed in the file, or 0)",
    )
    group.add_argument(
        "--chaos",
        metavar="SEED",
        type=number(int, least=0),
        help="inject random faults as soon as the kubelet is ready; the same seed selects the "
        "same faults",
    )


def _fault(text: str) -> Fault:
    from devicemanager.faults import Fault, FaultError

    try:
        return _check(Fault.parse(text))
    except FaultError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _check(fault: Fault) -> Fault:
    """Return the fault. Raises FaultError for an action without ``at``, which would be executed at
    startup."""
    from devicemanager.faults import FaultError

    if fault.is_immediate:
        raise FaultError(
            f"{fault.kind.name} needs at=POINT, such as {fault.kind.name}:at=registered: at "
            "startup it would fire before any plugin or pod exists"
        )
    return fault


def set_faults(args: argparse.Namespace, kubelet: MockKubelet) -> None:
    """Configure ``kubelet`` to inject the faults that the flags and the fault file define. Raises
    FaultError and CommandError."""
    # Accessing kubelet.faults creates the registry, so it is avoided without flags.
    if not args.faults and args.fault_file is None and args.fault_seed is None:
        return
    seed, faults = None, list(args.faults)
    if args.fault_file is not None:
        from devicemanager.faults import FaultError, read_faults

        seed, found = read_faults(Path(args.fault_file))
        try:
            faults += map(_check, found)
        except FaultError as error:
            raise CommandError(f"{args.fault_file}: {error}") from None
    # The flag overrides the file, so that a run can be repeated with another seed.
    seed = seed if args.fault_seed is None else args.fault_seed
    kubelet.faults.seed = seed or 0
    for fault in faults:
        kubelet.faults.set(fault)


def start_chaos(args: argparse.Namespace, kubelet: MockKubelet, log: KubeletLog) -> None:
    """Set the faults that the seed of ``--chaos`` selects, and print them. Do nothing without
    ``--chaos``."""
    if args.chaos is None:
        return
    from devicemanager.faults import chaos

    # Printed, so that a run can be repeated with some of these faults, using --fault.
    for fault in chaos(args.chaos):
        state = kubelet.faults.set(fault)
        log.say("chaos", f"chaos {args.chaos}: {fault}", seed=args.chaos, fault=state.as_data())
