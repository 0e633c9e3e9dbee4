"""The actions of ``devicemanager ctl nodes``: one for each operation on nodes in a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.ctl_action import LIST, add_where, nodes_action
from devicemanager.cli.options import CommandParser
from devicemanager.cli.settings_options import number

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

LEAVE = ("delete", "keep", "shutdown")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_EPILOG = """\
examples, beside `devicemanager join --root ./nodes --control`:
  export DEVICEMANAGER_CONTROL=./nodes
  %(prog)s list
  %(prog)s show virtual-3
  %(prog)s fail-device virtual-3 vendor.com/gpu gpu-2
  %(prog)s pressure virtual-3 virtual-4 --condition DiskPressure
"""
_POD = "a pod of the node: its name, NAMESPACE/NAME, or UID"


def add(actions: Subparsers) -> None:
    """Add the action and those below it."""
    parser = actions.add_parser(
        "nodes",
        help="steer nodes in a cluster, those of `join --control`",
        description="Steers nodes in a cluster, of a `devicemanager join --control`.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Whoever steers a kubelet does not need them.
    parser.complete = _add_actions


def _add_actions(parser: argparse.ArgumentParser) -> None:
    add_where(parser, default=argparse.SUPPRESS)
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    _add_reading(actions)
    _add_devices(actions)
    _add_states(actions)
    _add_pods(actions)
    leave = _of_nodes(actions, "leave", "let nodes leave the cluster")
    leave.add_argument(
        "--how",
        choices=LEAVE,
        default="delete",
        help="delete the nodes, keep them, or shut them down, which ends their pods first "
        "(default: delete)",
    )


def _add_reading(actions: Subparsers) -> None:
    listed = nodes_action(actions, "list", "ctl_nodes.list_nodes", "list nodes", *LIST)
    listed.add_argument("nodes", nargs="*", metavar="NODE", type=_filled, help="these nodes only")
    shown = nodes_action(
        actions,
        "show",
        "ctl_nodes.show_node",
        "show a node with its conditions, resources and pods",
        "text",
        "yaml",
        "json",
    )
    shown.add_argument("node", metavar="NODE", type=_filled, help="its name")


def _add_devices(actions: Subparsers) -> None:
    for name, help_ in (
        ("fail-device", "make devices unhealthy"),
        ("recover-device", "make devices healthy"),
        ("lose-device", "let the plugin list devices no more"),
        ("return-device", "let the plugin list devices again that were lost"),
    ):
        of_devices = _of_resource(actions, name, help_)
        of_devices.add_argument("devices", nargs="+", metavar="DEVICE", help="its id")
    _of_resource(
        actions, "stop-plugin", "end a plugin: its devices are unhealthy, and gone after a while"
    )
    _of_resource(actions, "start-plugin", "register a plugin again that ended")
    zero = _of_resource(actions, "zero-capacity", "let a plugin list nothing")
    zero.add_argument("--off", action="store_true", help="it lists its devices again")


def _add_states(actions: Subparsers) -> None:
    not_ready = _of_nodes(actions, "not-ready", "make nodes not ready")
    either = not_ready.add_mutually_exclusive_group()
    either.add_argument(
        "--message", type=_filled, metavar="TEXT", help="what the condition Ready says"
    )
    either.add_argument("--off", action="store_true", help="take that back")
    pressure = _of_nodes(
        actions, "pressure", "say what nodes are short of: they reject pods as a kubelet does"
    ).add_mutually_exclusive_group(required=True)
    pressure.add_argument(
        "--condition",
        action="append",
        dest="conditions",
        choices=PRESSURES,
        help="this, and no other that is not named as well; may be repeated",
    )
    pressure.add_argument("--off", action="store_true", help="they are short of nothing")
    silent = _of_nodes(actions, "silent", "let nobody hear of nodes: no lease, no status")
    silent.add_argument("--off", action="store_true", help="they are heard of again")
    _of_nodes(
        actions, "reboot", "start machines anew: no container runs, every pod is admitted again"
    )
    _of_nodes(actions, "restart", "start the nodes' kubelets anew; containers keep running")


def _add_pods(actions: Subparsers) -> None:
    evict = _of_node(actions, "evict", "let the kubelet end pods because the node is low")
    evict.add_argument("pods", nargs="+", metavar="POD", help=_POD)
    evict.add_argument(
        "--resource",
        default="memory",
        metavar="RESOURCE",
        help="what the node is low on (default: memory)",
    )
    ends = _of_node(actions, "exit-container", "let a running container end")
    ends.add_argument("pod", metavar="POD", help=_POD)
    ends.add_argument("container", metavar="CONTAINER", type=_filled, help="its name")
    ends.add_argument("--exit-code", type=number(int), default=0, metavar="N", help="(default: 0)")
    ends.add_argument("--reason", default="", metavar="WORD", help="such as OOMKilled")


def _of_nodes(actions: Subparsers, name: str, help_: str) -> CommandParser:
    parser = nodes_action(actions, name, _function(name), help_)
    parser.add_argument("nodes", nargs="+", metavar="NODE", type=_filled, help="a node's name")
    return parser


def _of_node(actions: Subparsers, name: str, help_: str) -> CommandParser:
    parser = nodes_action(actions, name, _function(name), help_)
    parser.add_argument("node", metavar="NODE", type=_filled, help="its name")
    return parser


def _of_resource(actions: Subparsers, name: str, help_: str) -> CommandParser:
    parser = _of_node(actions, name, help_)
    parser.add_argument("resource", metavar="RESOURCE", help="such as vendor.com/gpu")
    return parser


def _function(name: str) -> str:
    return f"ctl_nodes.{name.replace('-', '_')}"


def _filled(text: str) -> str:
    """A name is a part of a path; without a message a node is ready."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text
