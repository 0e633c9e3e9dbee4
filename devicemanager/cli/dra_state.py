"""``devicemanager dra state``: the DRA drivers and ResourceClaims of a running mock kubelet."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_file
from devicemanager.cli.options import add_format, command, needs_extra
from devicemanager.cli.output import clean, print_json, print_table

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.dra.report import DraStatus

_MAX_FILE = 64 << 20
_DESCRIPTION = """\
Show the registered DRA drivers, and the ResourceClaims of the node with their devices. The kubelet
is a mock kubelet that was started with `devicemanager run --control`. With FILE, show the claims in
the dra_manager_state of any kubelet, as `devicemanager checkpoint show` does.
"""


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra state``."""
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

    add_file(parser, "file", "dra_manager_state of any kubelet", nargs="?", metavar="FILE")
    add_format(parser, "table", "json")
    add_where(parser, None)


def _run(args: argparse.Namespace) -> int:
    if args.file:
        return _show_file(args.file, args.output)
    from devicemanager.cli.ctl_client import connected

    with connected(args) as kubelet:
        found = kubelet.dra_status()
    if args.output == "json":
        import attrs

        print_json("dra", attrs.asdict(found))
    else:
        _print(found)
    return 0


def _show_file(path: str, form: str) -> int:
    from devicemanager.cli.checkpoint_claims import ClaimContents
    from devicemanager.cli.files import read_file

    found = ClaimContents.read(read_file(path, _MAX_FILE))
    for problem in found.problems:
        # A warning, because the readable claims of a damaged file are still shown.
        print(f"devicemanager: warning: {path}: {clean(problem)}", file=sys.stderr)
    if form == "json":
        # The same schema as for a running kubelet. The file contains only claims.
        print_json("dra", {"drivers": [], "slices": [], **found.as_dict({})})
    else:
        for line in found.lines({}):
            print(line)
    return int(bool(found.problems))


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
                "unpreparing" if each.unpreparing else each.state.value,
                ",".join(each.pods),
                ",".join(f"{one.driver}/{one.pool}/{one.device}" for one in each.devices) or "-",
            )
            for each in found.claims
        ],
    )
