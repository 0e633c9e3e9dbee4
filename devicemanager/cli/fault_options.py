"""``--fault``, ``--faults``, ``--fault-seed`` and ``--chaos``: faults on purpose."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.files import file_name
from devicemanager.cli.options import CommandError
from devicemanager.cli.settings_options import number

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.faults import Fault
    from devicemanager.kubelet.mock import MockKubelet

__all__ = ["add_faults", "set_faults", "start_chaos"]


def add_faults(parser: argparse.ArgumentParser) -> None:
    """The flags; see docs/faults.md."""
    group = parser.add_argument_group("faults")
    group.add_argument(
        "--fault",
        metavar="KIND[:NAME=VALUE,...]",
        type=_fault,
        action="append",
        default=[],
        dest="faults",
        help="a fault on purpose, such as reject-register:code=UNAVAILABLE,times=2; may be "
        "repeated. An unknown kind lists them",
    )
    group.add_argument(
        "--faults",
        metavar="FILE",
        type=file_name,
        dest="fault_file",
        help="faults from a file: a YAML or JSON list of such lines, or of mappings with kind "
        "and options",
    )
    group.add_argument(
        "--fault-seed",
        metavar="N",
        type=number(int, least=0),
        help="decides when a fault with a probability fires (default: that of the file, or 0)",
    )
    group.add_argument(
        "--chaos",
        metavar="SEED",
        type=number(int, least=0),
        help="faults picked at random, from when the kubelet is ready on; the same seed picks "
        "the same ones",
    )


def _fault(text: str) -> Fault:
    from devicemanager.faults import Fault, FaultError

    try:
        return _that_waits(Fault.parse(text))
    except FaultError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _that_waits(fault: Fault) -> Fault:
    """Raises FaultError for an action that would be executed at once."""
    from devicemanager.faults import FaultError

    if fault.is_immediate:
        raise FaultError(
            f"{fault.kind.name} would be executed at once, when there is nothing yet: give it "
            f"at=POINT, such as {fault.kind.name}:at=registered"
        )
    return fault


def set_faults(args: argparse.Namespace, kubelet: MockKubelet) -> None:
    """Set the faults of the command line and of the file. Raises FaultError."""
    if not args.faults and args.fault_file is None and args.fault_seed is None:
        return
    seed, faults = None, list(args.faults)
    if args.fault_file is not None:
        from devicemanager.faults import FaultError, read_faults

        seed, found = read_faults(Path(args.fault_file))
        try:
            faults += map(_that_waits, found)
        except FaultError as error:
            raise CommandError(f"{args.fault_file}: {error}") from None
    seed = seed if args.fault_seed is None else args.fault_seed
    kubelet.faults.seed = seed or 0
    for fault in faults:
        kubelet.faults.set(fault)


def start_chaos(args: argparse.Namespace, kubelet: MockKubelet, log: KubeletLog) -> None:
    """Set the faults of the seed, and say which they are."""
    if args.chaos is None:
        return
    from devicemanager.faults import chaos

    for fault in chaos(args.chaos):
        state = kubelet.faults.set(fault)
        log.say("chaos", f"chaos {args.chaos}: {fault}", seed=args.chaos, fault=state.as_data())
