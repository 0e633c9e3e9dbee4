"""``devicemanager ctl``: control a mock kubelet, or nodes in a cluster, through the control API.

``ctl_kubelet`` and ``ctl_nodes`` have the actions, which are derived from the operations of the
control API. These modules are imported only when ``ctl`` is called, because they are slow to import
and need the pip extra ``control``.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandParser, needs_extra

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_EPILOG = """\
examples, with `devicemanager run --root ./node --control` in another terminal:
  export DEVICEMANAGER_CONTROL=./node
  %(prog)s admit pod.yaml
  %(prog)s pods -o wide
  %(prog)s fault set reject-register:times=2
  %(prog)s events -f
"""
_NODES_EPILOG = """\
examples, with `devicemanager join --root ./nodes --control` in another terminal:
  export DEVICEMANAGER_CONTROL=./nodes
  %(prog)s list
  %(prog)s show virtual-3
  %(prog)s fail-device virtual-3 vendor.com/gpu gpu-2
  %(prog)s pressure virtual-3 virtual-4 --condition DiskPressure
"""


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager ctl``. Its actions are added only if the user calls ``ctl``."""
    parser = subparsers.add_parser(
        "ctl",
        # `devicemanager --help` shows this text without loading the actions.
        help="control a running mock kubelet, or nodes in a cluster",
        description="Control a mock kubelet that was started with `devicemanager run --control`,\n"
        "or with `ctl nodes` the nodes of `devicemanager join --control`.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.complete = _add_kubelet_actions


def _add_kubelet_actions(parser: argparse.ArgumentParser) -> None:
    actions = _add_actions(parser, "ctl_kubelet", default=None)
    import_module("devicemanager.cli.ctl_shell").add(actions)
    nodes = actions.add_parser(
        "nodes",
        help="control the nodes of `join --control`",
        description="Control the nodes of `devicemanager join --control`.",
        epilog=_NODES_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    nodes.complete = _add_nodes_actions


def _add_nodes_actions(parser: argparse.ArgumentParser) -> None:
    # A default would overwrite flags that were given before `nodes`.
    _add_actions(parser, "ctl_nodes", default=argparse.SUPPRESS)


def _add_actions(parser: argparse.ArgumentParser, module: str, default: str | None) -> Subparsers:
    # Imported by name, because the two modules have the same functions.
    with needs_extra("ctl", "control"):
        actions = import_module(f"devicemanager.cli.{module}")
    actions.add_where(parser, default)
    subparsers = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    actions.add(subparsers)
    return subparsers
