"""``devicemanager simulate``: the simulated plugin, against any kubelet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import command

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the subcommand; its many flags come once it is called."""
    command(
        subparsers,
        "simulate",
        _run,
        "run a device plugin with virtual devices",
        description="A device plugin with virtual devices, for any kubelet. Every flag is also "
        "an environment variable, under the name shown behind it.",
        complete=_complete,
    )


def _complete(parser: argparse.ArgumentParser) -> None:
    from devicemanager.plugin.simulated import add_arguments

    add_arguments(parser)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.plugin.simulated import run

    return run(args)
