"""``devicemanager dra state``: the DRA drivers and ResourceClaims of a running mock kubelet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import add_format, command, needs_extra
from devicemanager.cli.output import print_table

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.dra.report import DraStatus

_DESCRIPTION = """\
Show the registered DRA drivers, and the ResourceClaims that pods of the node hold. The kubelet is a
mock kubelet that was started with `devicemanager run --control`. For the file of any kubelet, use
`devicemanager checkpoint show ROOT/dra_manager_state`.
"""


def add(actions: Subparsers) -> None:
    """Add ``devicemanager dra state``."""
    command(
        actions,
        "state",
        _run,
        "show the DRA drivers and the ResourceClaims of a kubelet",
        _DESCRIPTION,
        _complete,
    )


def _complete(parser: argparse.ArgumentParser) -> None:
    # Imported here, because the modules of the control API are slow to import.
    with needs_extra("dra state", "control"):
        from devicemanager.cli.ctl_action import add_where

    add_format(parser, "table", "json")
    add_where(parser, None)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.ctl_client import connected

    with connected(args) as kubelet:
        found = kubelet.dra_status()
    if args.output == "json":
        import attrs

        from devicemanager.cli.output import print_json

        print_json("dra", attrs.asdict(found))
    else:
        _print(found)
    return 0


def _print(found: DraStatus) -> None:
    print_table(
        ("DRIVER", "SERVICE", "HEALTH", "CONNECTED", "ENDPOINT"),
        [
            (
                each.driver,
                each.service,
                each.health_service or "-",
                "yes" if each.connected else "no",
                each.endpoint,
            )
            for each in found.drivers
        ],
    )
    print()
    print_table(
        ("NAMESPACE", "CLAIM", "STATE", "PODS", "DEVICES"),
        [
            (
                each.namespace,
                each.name,
                "unpreparing" if each.unpreparing else "prepared" if each.prepared else "held",
                ",".join(each.pods),
                ",".join(f"{one.driver}/{one.pool}/{one.device}" for one in each.devices) or "-",
            )
            for each in found.claims
        ],
    )
