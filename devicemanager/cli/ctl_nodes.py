"""The actions of ``devicemanager ctl nodes``: one for each operation on nodes in a cluster.

The module is imported only when ``ctl nodes`` is called, because the operations need the pip
extra ``control``.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from devicemanager.cli.ctl_action import LIST, Action, Actions, add_where, argument, filled
from devicemanager.cli.ctl_client import connected_to_nodes, show
from devicemanager.cli.ctl_lists import Listing, devices_text, print_items
from devicemanager.cli.output import clean, print_table
from devicemanager.control.api_client import ServedApi
from devicemanager.control.nodes import shapes
from devicemanager.control.nodes.operations import TABLE
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.kubelet.pods.pod_info import PodInfo

__all__ = ["add", "add_where"]

_LEAVE_SECONDS: Final = 60.0
"""Seconds that the server may need to update the API server."""
_SCALE_SECONDS: Final = 600.0
"""Seconds that thousands of nodes may need to join."""
_LEFT: Final = {"delete": "deleted", "keep": "kept", "shutdown": "shut down"}


class _NodeActions(Actions):
    prefix = "node {node}: "

    def check(self, client: ServedApi, args: argparse.Namespace) -> None:
        # An unknown name among several must leave all nodes unchanged, so names are checked first.
        # The request itself reports an unknown name if there is only one.
        # Actions on a single node have no argument ``nodes``.
        names = dict.fromkeys(getattr(args, "nodes", ()))
        if len(names) > 1:
            _check(client, names, {each.name for each in client.ask("listNodes").items})

    def pods(self, client: ServedApi, args: argparse.Namespace) -> tuple[Sequence[PodInfo], str]:
        node: shapes.Node = client.ask("getNode", args.node)
        return (
            node.pod_list,
            f"`devicemanager ctl nodes show {args.node}` lists the pods of the node",
        )


def add(subparsers: Subparsers) -> None:
    """Add all actions on nodes in a cluster to the parser of ``devicemanager ctl nodes``."""
    actions = _NodeActions(TABLE, connected_to_nodes)
    actions.add(
        subparsers,
        Action(
            "list",
            "listNodes",
            help="list nodes",
            formats=LIST,
            more=[
                argument(
                    "nodes",
                    nargs="*",
                    metavar="NODE",
                    type=filled,
                    help="names of the nodes (default: all)",
                )
            ],
            run=_list_nodes,
        ),
        Action(
            "show",
            "getNode",
            help="show a node with its conditions, resources and pods",
            formats=("text", "yaml", "json"),
            run=_show_node,
        ),
        *(
            Action(
                f"{verb}-device",
                f"{verb}Device",
                done=f"device {{resource}}/{{device}} {done}",
                many="device",
            )
            for verb, done in (
                ("fail", "failed"),
                ("recover", "recovered"),
                ("lose", "lost"),
                ("return", "returned"),
            )
        ),
        Action("stop-plugin", "stopPlugin", done="plugin {resource} stopped"),
        Action("start-plugin", "startPlugin", done="plugin {resource} started"),
        Action(
            "zero-capacity",
            "zeroCapacity",
            done="plugin {resource} advertises no devices",
            off=("zero", False, "plugin {resource} advertises its devices again"),
        ),
        Action(
            "fail-prepare",
            "failPrepare",
            done="driver {driver} fails to prepare claims",
            off=("times", 0, "driver {driver} prepares claims again"),
        ),
        Action(
            "fail-unprepare",
            "failUnprepare",
            done="driver {driver} fails to unprepare claims",
            off=("fails", False, "driver {driver} unprepares claims again"),
        ),
        Action(
            "delay-prepare",
            "delayPrepare",
            done="driver {driver} prepares claims after {seconds:g} s",
        ),
        Action(
            "not-ready",
            "setNotReady",
            done="set to not ready",
            # The text is not "ready", because the Node's annotation can also set it to not ready.
            off=("message", "", "not-ready cleared"),
            many="node",
        ),
        Action(
            "pressure",
            "setPressure",
            done="{conditions}",
            off=("conditions", [], "no pressure"),
            many="node",
        ),
        Action(
            "silent",
            "silence",
            done="silent",
            off=("silent", False, "reports again"),
            many="node",
        ),
        Action("reboot", "rebootNode", done="rebooted", many="node"),
        Action("restart", "restartKubelet", done="kubelet restarted", many="node"),
        Action("evict", "evictPod", done="pod {pod} evicted", many="pod"),
        Action(
            "exit-container",
            "exitContainer",
            done="container {container} of pod {pod} terminated with exit code {exit_code}",
        ),
        Action(
            "scale",
            "scaleKind",
            left_out=("kind", "count"),
            more=[
                argument(
                    "scaled",
                    metavar="KIND=COUNT",
                    type=_scaled,
                    help="kind of nodes in the file of `join -f`, and their number",
                )
            ],
            timeout=_SCALE_SECONDS,
            run=_scale,
        ),
        Action(
            "leave",
            "leave",
            # --how is optional, so the facts may lack it.
            done=lambda facts: f"has left and is {_LEFT[facts.get('how') or 'delete']}",
            many="node",
            timeout=_LEAVE_SECONDS,
        ),
    )


def _scaled(text: str) -> tuple[str, int]:
    kind, _, count = text.rpartition("=")
    # Six digits are enough for the server's limit of 100,000 nodes.
    if not kind or not count.isdecimal() or len(count) > 6:
        raise argparse.ArgumentTypeError(f"invalid kind {text!r}: expected KIND=COUNT")
    return kind, int(count)


def _scale(api: ServedApi, args: argparse.Namespace) -> int:
    kind, count = args.scaled
    api.ask("scaleKind", body=shapes.Scale(kind=kind, count=count), timeout=_SCALE_SECONDS)
    print(clean(f"kind {kind}: {counted(count, 'node')}"))
    return 0


def _check(api: ServedApi, names: Iterable[str], known: Container[str]) -> None:
    for name in names:
        if name not in known:
            api.ask("getNode", name)  # raises the server's error


# -- list and show -----------------------------------------------------------------------


def _list_nodes(api: ServedApi, args: argparse.Namespace) -> int:
    answer: shapes.NodeList = api.ask("listNodes")
    if args.nodes:
        found = {each.name: each for each in answer.items}
        _check(api, args.nodes, found)
        # In the order of the arguments, as kubectl lists named objects.
        answer = msgspec.structs.replace(answer, items=[found[name] for name in args.nodes])
    print_items(_NODES, answer, args.output)
    return 0


def _show_node(api: ServedApi, args: argparse.Namespace) -> int:
    node: shapes.Node = api.ask("getNode", args.node)
    if args.output == "text":
        _print_node(node)
    else:
        show(node, args.output)
    return 0


def _print_node(node: shapes.Node) -> None:
    print(clean(f"node {node.name} ({node.uid}): {_status(node)}"))
    for fault in node.faults:
        print(clean(f"  fault {fault}"))
    print()
    print_table(
        ("CONDITION", "STATUS", "REASON", "MESSAGE"),
        [(each.type, str(each.status), each.reason, each.message) for each in node.conditions],
    )
    print()
    print_table(
        ("RESOURCE", "CAPACITY", "ALLOCATABLE", "ALLOCATED"),
        [
            (name, str(each.capacity), str(each.allocatable), str(each.held))
            for name, each in node.resources.items()
        ],
    )
    print()
    print_table(_PODS.headings(False), [_PODS.cells(pod, False) for pod in node.pod_list])


_PODS: Final = Listing(
    lambda pod: pod.title,
    [
        ("NAMESPACE", lambda pod: pod.namespace),
        ("NAME", lambda pod: pod.name),
        ("STATUS", lambda pod: pod.phase),
        ("REASON", lambda pod: pod.reason),
        ("DEVICES", devices_text),
        ("UID", lambda pod: pod.uid),
        ("MESSAGE", lambda pod: pod.message),
    ],
)


def _status(node: shapes.NodeSummary) -> str:
    """Return the status of a node as kubectl does, such as ``NotReady,DiskPressure``."""
    words = ["Ready" if node.ready else "NotReady", *node.pressures]
    return ",".join([*words, "Silent"] if node.silent else words)


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return ",".join(f"{name}={value}" for name, value in pairs)


_NODES: Final = Listing(
    lambda node: node.name,
    [
        ("NAME", lambda node: node.name),
        ("STATUS", _status),
        ("PODS", lambda node: sum(node.pods.values())),
        (
            "DEVICES",
            lambda node: _pairs(
                (name, f"{each.held}/{each.allocatable}") for name, each in node.resources.items()
            ),
        ),
    ],
    [
        (
            "CAPACITY",
            lambda node: _pairs((name, each.capacity) for name, each in node.resources.items()),
        ),
        ("PHASES", lambda node: _pairs(node.pods.items())),
        ("FAULTS", lambda node: "; ".join(node.faults)),
    ],
)
