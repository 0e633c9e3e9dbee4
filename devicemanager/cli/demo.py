"""``devicemanager demo``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import command

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    command(subparsers, "demo", _run, "show it all: kubelet, plugins, pods, a crash")


def _run(args: argparse.Namespace) -> int:
    raise NotImplementedError
