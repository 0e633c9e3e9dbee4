"""``devicemanager simulate``: run a device plugin with virtual devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import command

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager simulate``. Its flags are added only if the user runs it."""
    command(
        subparsers,
        "simulate",
        _run,
        "run a device plugin with virtual devices",
        description="Run a device plugin with virtual devices, for any kubelet. Each flag can also "
        "be set by the environment variable that is shown after it.",
        complete=_complete,
    )


def _complete(parser: argparse.ArgumentParser) -> None:
    # Imported here, because importing gRPC would slow down `devicemanager --help`.
    from devicemanager.plugin.simulated import add_arguments

    add_arguments(parser)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.plugin.simulated import run

    return run(args)
