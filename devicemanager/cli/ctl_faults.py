"""What ``devicemanager ctl fault`` does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from devicemanager.cli.ctl_lists import Listing, print_items
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient

_FAULTS = Listing(
    lambda fault: f"fault/{fault.id}",
    ("ID", "FAULT", "SEEN", "FIRED", "SPENT"),
    lambda fault: (
        str(fault.id),
        fault.spec,
        str(fault.seen),
        str(fault.fired),
        "yes" if fault.spent else "no",
    ),
    ("HOLDING",),
    lambda fault: (str(fault.holding),),
)


def set_faults(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl fault set``."""
    from devicemanager.faults import Fault

    for fault in [Fault.parse(spec) for spec in args.specs]:  # all of them, or none
        state = client.faults.set(fault)
        done = "executed" if state.fault.is_immediate else "set"
        print(clean(f"fault {state.id} {done}: {state.fault}"))
    return 0


def list_faults(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl fault list``."""
    answer: Any = client.ask("listFaults")
    print_items(_FAULTS, answer, args.output)
    return 0


def clear(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl fault clear``."""
    wanted = [int(text) if text.isascii() and text.isdigit() else text for text in args.which]
    count = sum(client.faults.clear(which) for which in wanted or [None])
    print(f"{count} faults cleared")
    return 0
