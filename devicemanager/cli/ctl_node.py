"""What ``devicemanager ctl`` does with the node and its kubelet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.ctl_client import content, show
from devicemanager.cli.files import check_one_standard_input
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient


def node(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl node``."""
    show(client.node(), args.output)
    return 0


def checkpoint(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl checkpoint``."""
    show(client.ask("getCheckpoint"), args.output)
    return 0


def start(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl start``."""
    client.start()
    print("kubelet started")
    return 0


def stop(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl stop``."""
    client.stop()
    print("kubelet stopped")
    return 0


def restart(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl restart``."""
    client.restart()
    print("kubelet restarted")
    return 0


def reboot(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl reboot``."""
    client.reboot()
    print("node rebooted")
    return 0


def sources_ready(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl sources-ready``."""
    client.sources_ready()
    print("all pods are known")
    return 0


def apply(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl apply``."""
    from devicemanager.claims.errors import ClaimsError

    check_one_standard_input(args.files)
    for file in args.files:
        # Any kind of object is taken there.
        try:
            client.ask("createClaims", body=content(file))
        except ClaimsError as error:
            raise CommandError(f"{file}: {error}") from error
        print(clean(f"{file} applied"))
    return 0


def clock(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl clock show``."""
    show(client.ask("getClock"), args.output)
    return 0


def advance(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl clock advance``."""
    client.clock.advance(args.time)
    print(f"clock advanced by {args.time:g} s")
    return 0
