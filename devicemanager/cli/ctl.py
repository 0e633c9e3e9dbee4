"""``devicemanager ctl``: steers a mock kubelet that serves the control API, or nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from devicemanager.cli import ctl_nodes_options
from devicemanager.cli.ctl_action import LIST, ONE, action, add_where
from devicemanager.cli.files import file_name
from devicemanager.cli.options import CommandParser
from devicemanager.cli.settings_options import number

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_EPILOG = """\
examples, beside `devicemanager run --root ./node --control`:
  export DEVICEMANAGER_CONTROL=./node
  %(prog)s admit pod.yaml
  %(prog)s pods -o wide
  %(prog)s fault set reject-register:times=2
  %(prog)s events -f
"""
_POD = "a pod: its name, NAMESPACE/NAME, or UID"
_LINES = ("text", "json")
_KIND = "an unknown kind, or option, lists them all"


def add(subparsers: Subparsers) -> None:
    """Add the subcommand and its own subcommands."""
    parser = subparsers.add_parser(
        "ctl",
        help="steer a running mock kubelet, or nodes in a cluster",
        description="Steer a mock kubelet that was started with `devicemanager run --control`,\n"
        "or with `nodes` those of `devicemanager join --control`.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_where(parser, default=None)
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    _add_pods(actions)
    _add_node(actions)
    _add_records(actions)
    _add_faults(actions)
    _add_waits(actions)
    _add_clock(actions)
    ctl_nodes_options.add(actions)


def _listing(actions: Subparsers, name: str, help_: str) -> Any:
    parser = action(actions, name, f"ctl_lists.{name}", help_, *LIST)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="go on with what changes, until Ctrl-C"
    )
    return parser


def _add_pods(actions: Subparsers) -> None:
    admit = action(
        actions,
        "admit",
        "ctl_pods.admit",
        "admit pods: 1 if one is rejected",
        "text",
        "json",
        "yaml",
    )
    admit.add_argument(
        "files", nargs="+", metavar="FILE", type=file_name, help="a manifest; - is standard input"
    )
    admit.add_argument("--no-start", action="store_true", help="do not start the containers")
    pods = _listing(actions, "pods", "list pods, or show some")
    pods.add_argument("pods", nargs="*", metavar="POD", help=_POD)
    delete = action(actions, "delete", "ctl_pods.delete", "end and delete pods")
    delete.add_argument("pods", nargs="+", metavar="POD", help=_POD)
    delete.add_argument(
        "--grace-period",
        type=_seconds,
        metavar="TIME",
        help="the containers have so long to end, at least 1s, such as 30s (default: none)",
    )
    finish = action(actions, "finish", "ctl_pods.finish", "let the containers of a pod end")
    finish.add_argument("pod", metavar="POD", help=_POD)
    finish.add_argument(
        "--exit-code",
        action="append",
        default=[],
        metavar="[CONTAINER=]N",
        help="of all containers, or of one; may be repeated (default: 0)",
    )
    for name in ("start", "restart"):
        container = action(
            actions,
            f"{name}-container",
            f"ctl_pods.{name}_container",
            f"{name} a container of a pod, and show its settings",
            *ONE,
        )
        container.add_argument("pod", metavar="POD", help=_POD)
        container.add_argument("container", metavar="CONTAINER", help="its name")
    ends = action(actions, "exit-container", "ctl_pods.exit_container", "let a container end", *ONE)
    ends.add_argument("pod", metavar="POD", help=_POD)
    ends.add_argument("container", metavar="CONTAINER", help="its name")
    ends.add_argument("--exit-code", type=number(int), default=0, metavar="N", help="(default: 0)")
    ends.add_argument("--reason", default="", metavar="WORD", help="such as OOMKilled")
    statuses = action(
        actions,
        "container-statuses",
        "ctl_pods.container_statuses",
        "show the statuses of a pod's containers",
        *ONE,
    )
    statuses.add_argument("pod", metavar="POD", help=_POD)


def _add_node(actions: Subparsers) -> None:
    devices = _listing(actions, "devices", "list devices with their holders")
    devices.add_argument("--resource", metavar="RESOURCE", help="of this resource only")
    _listing(actions, "resources", "list resources with their counts of devices")
    _listing(actions, "plugins", "list the plugins of the resources")
    action(actions, "node", "ctl_node.node", "show the node and its paths", *ONE)
    action(actions, "checkpoint", "ctl_node.checkpoint", "show the checkpoint file", *ONE)
    for name, help_ in (
        ("start", "serve again after stop"),
        ("stop", "stop serving; pods stay"),
        ("restart", "start the kubelet anew; containers keep running"),
        ("reboot", "start the node anew: no container runs, every pod is admitted again"),
        ("sources-ready", "say that all pods are known: devices of others are freed"),
    ):
        action(actions, name, f"ctl_node.{name.replace('-', '_')}", help_)
    apply = action(
        actions, "apply", "ctl_node.apply", "create pools, classes and claims of structured claims"
    )
    apply.add_argument(
        "files", nargs="+", metavar="FILE", type=file_name, help="YAML or JSON; - is standard input"
    )


def _add_records(actions: Subparsers) -> None:
    events = action(actions, "events", "ctl_records.events", "show what has happened", *_LINES)
    events.add_argument(
        "--kind", action="append", default=[], metavar="KIND", help="of this kind; may be repeated"
    )
    calls = action(
        actions, "calls", "ctl_records.calls", "show calls between kubelet and plugins", *_LINES
    )
    calls.add_argument("--resource", metavar="RESOURCE", help="of this resource only")
    calls.add_argument("--rpc", metavar="RPC", help="of this method only, such as Allocate")
    calls.add_argument("--code", metavar="CODE", help="with this status code only, such as OK")
    calls.add_argument("--pending", action="store_true", help="those that are not answered yet")
    for each in (events, calls):
        each.add_argument(
            "-f", "--follow", action="store_true", help="go on with those that come, until Ctrl-C"
        )
        each.add_argument(
            "--since",
            type=number(int, 0),
            default=0,
            metavar="N",
            help="later than the one of this number only",
        )


def _add_faults(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "fault",
        help="set, list and clear faults of the kubelet",
        description="Set, list and clear what the kubelet does wrong on purpose.",
    )
    faults = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    set_ = action(faults, "set", "ctl_faults.set_faults", "set faults")
    set_.add_argument(
        "specs", nargs="+", metavar="KIND[:OPTION=VALUE,...]", help=f"such as {_EXAMPLE}; {_KIND}"
    )
    action(faults, "list", "ctl_faults.list_faults", "list the faults that are set", *LIST)
    clear = action(faults, "clear", "ctl_faults.clear", "take faults back, all or those named")
    clear.add_argument("which", nargs="*", metavar="ID|KIND", help="a fault's id, or a kind")


_EXAMPLE = "reject-register:code=UNAVAILABLE,times=2"


def _add_waits(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "wait",
        help="wait for devices, an event, a call or a pod: 1 if it does not come",
        description="Wait; if what is waited for does not come in time, say what did happen "
        "and end with 1.",
    )
    waits = parser.add_subparsers(metavar="WHAT", required=True, parser_class=CommandParser)
    resource = action(waits, "resource", "ctl_waits.resource", "until devices are allocatable")
    resource.add_argument("resource", metavar="RESOURCE", help="such as vendor.com/gpu")
    resource.add_argument(
        "--count", type=number(int, 0), metavar="N", help="exactly so many (default: any)"
    )
    event = action(waits, "event", "ctl_waits.event", "until an event comes", *_LINES)
    event.add_argument("kinds", nargs="*", metavar="KIND", help="of one of these kinds")
    event.add_argument("--resource", metavar="RESOURCE", help="of this resource only")
    event.add_argument(
        "--after",
        type=number(int, 0),
        metavar="N",
        help="later than the event of this number; 0: than none (default: than now)",
    )
    call = action(waits, "call", "ctl_waits.call", "until a call has ended", *_LINES)
    call.add_argument("rpc", nargs="?", metavar="RPC", help="of this method, such as Allocate")
    call.add_argument("--resource", metavar="RESOURCE", help="of this resource only")
    call.add_argument("--code", metavar="CODE", help="with this status code only, such as OK")
    call.add_argument(
        "--after",
        type=number(int, 0),
        metavar="N",
        help="later than the call of this number; 0: than none (default: than now)",
    )
    pod = action(waits, "pod", "ctl_waits.pod", "until a pod is in a phase, or gone")
    pod.add_argument("pod", metavar="POD", help=_POD)
    pod.add_argument(
        "--phase",
        choices=("Pending", "Running", "Succeeded", "Failed", "Deleted"),
        default="Running",
        help="which (default: Running)",
    )
    for each in (resource, event, call, pod):
        each.add_argument(
            "--timeout",
            type=_seconds,
            default=10.0,
            metavar="TIME",
            help="how long, such as 30, 30s or 2m (default: 10s)",
        )


def _add_clock(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "clock",
        help="read and turn the kubelet's clock",
        description="A kubelet of `run --clock manual` has a clock that stands still until it is "
        "advanced.",
    )
    clock = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    action(clock, "show", "ctl_node.clock", "read the clock", *ONE)
    advance = action(clock, "advance", "ctl_node.advance", "let time pass")
    advance.add_argument(
        "time", type=_seconds, metavar="TIME", help="how long, such as 300, 90s, 5m or 1h30m"
    )


def _seconds(text: str) -> float:
    """``90``, ``90s``, ``5m``, ``1h30m``: in seconds."""
    import re

    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    form = r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?"
    found = re.fullmatch(form, text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as 90, 90s, 5m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds
