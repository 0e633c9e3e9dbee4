"""How an action of ``devicemanager ctl`` is added, and what it shares with all others."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Any

from devicemanager.cli.options import CommandParser, add_format, command

if TYPE_CHECKING:
    from devicemanager.cli.options import Run, Subparsers

LIST = ("table", "wide", "json", "yaml", "name")
"""Forms of a list."""
ONE = ("yaml", "json")
"""Forms of one thing."""


def action(actions: Subparsers, name: str, run: str, help_: str, *formats: str) -> CommandParser:
    """Add an action of a kubelet. ``run`` is ``MODULE.FUNCTION`` of this package; it is given a
    ``MockKubeletClient``."""
    return _action(actions, name, "connected", run, help_, *formats)


def nodes_action(
    actions: Subparsers, name: str, run: str, help_: str, *formats: str
) -> CommandParser:
    """The same of nodes in a cluster; ``run`` is given a ``ServedApi``."""
    return _action(actions, name, "connected_to_nodes", run, help_, *formats)


def _action(
    actions: Subparsers, name: str, connected: str, run: str, help_: str, *formats: str
) -> CommandParser:
    parser = command(actions, name, _late(connected, run), help_)
    # What stands before the action counts as well.
    add_where(parser, default=argparse.SUPPRESS)
    if formats:
        add_format(parser, *formats)
    return parser


def _late(connected: str, name: str) -> Run:
    """What runs an action; its module is loaded when it does."""
    module, _, function = name.rpartition(".")

    def run(args: argparse.Namespace) -> int:
        from devicemanager.cli import ctl_client

        with getattr(ctl_client, connected)(args) as client:
            act: Any = getattr(import_module(f"devicemanager.cli.{module}"), function)
            done: int = act(client, args)
        return done

    return run


def add_where(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Which kubelet, or which nodes."""
    group = parser.add_argument_group("where")
    group.add_argument(
        "--control",
        default=default,
        metavar="WHERE",
        help="the --root of `run` or `join`, its control socket, or http://HOST:PORT (default: "
        "$DEVICEMANAGER_CONTROL)",
    )
    group.add_argument(
        "--token-file",
        default=default,
        metavar="FILE",
        help="control.token in that root, for http (default: $DEVICEMANAGER_TOKEN_FILE)",
    )
