"""What ``devicemanager ctl nodes`` does. To be loaded when it runs: the shapes need the extra
``control``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import msgspec

from devicemanager.cli import ctl_client
from devicemanager.cli.ctl_lists import Listing, held_text, print_items
from devicemanager.cli.output import clean, print_table
from devicemanager.control.api_client import ServedApi
from devicemanager.control.nodes import shapes
from devicemanager.core.nodestatus.conditions import Pressure

_LEAVING = 60.0
"""Seconds that a server waits for the API server."""
_LEFT = {"delete": "deleted", "keep": "kept", "shutdown": "shut down"}

_Action = Callable[[ServedApi, argparse.Namespace], int]


# -- reading ---------------------------------------------------------------------------


def list_nodes(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes list``."""
    answer: shapes.NodeList = api.ask("listNodes")
    if args.nodes:
        found = {each.name: each for each in answer.items}
        _check(api, args.nodes, found)
        chosen = [found[name] for name in args.nodes]
        answer = msgspec.structs.replace(answer, items=chosen)
    print_items(_NODES, answer, args.output)
    return 0


def show_node(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes show``."""
    node: shapes.Node = api.ask("getNode", args.node)
    if args.output == "text":
        _print_node(node)
    else:
        ctl_client.show(node, args.output)
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
        ("RESOURCE", "CAPACITY", "ALLOCATABLE", "HELD"),
        [
            (name, str(each.capacity), str(each.allocatable), str(each.held))
            for name, each in node.resources.items()
        ],
    )
    print()
    print_table(
        ("NAMESPACE", "NAME", "STATUS", "REASON", "DEVICES", "UID", "MESSAGE"),
        [
            (
                pod.namespace,
                pod.name,
                pod.phase,
                pod.reason or "-",
                held_text(pod.devices),
                pod.uid,
                pod.message or "-",
            )
            for pod in node.pod_list
        ],
    )


def _status(node: shapes.NodeSummary) -> str:
    """Words as kubectl joins them: ``NotReady,DiskPressure``."""
    words = ["Ready" if node.ready else "NotReady", *node.pressures]
    return ",".join([*words, "Silent"] if node.silent else words)


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return ",".join(f"{name}={value}" for name, value in pairs) or "-"


_NODES = Listing(
    lambda node: node.name,
    ("NAME", "STATUS", "PODS", "DEVICES"),
    lambda node: (
        node.name,
        _status(node),
        str(sum(node.pods.values())),
        _pairs((name, f"{each.held}/{each.allocatable}") for name, each in node.resources.items()),
    ),
    ("CAPACITY", "PHASES", "FAULTS"),
    lambda node: (
        _pairs((name, each.capacity) for name, each in node.resources.items()),
        _pairs(node.pods.items()),
        "; ".join(node.faults) or "-",
    ),
)


# -- devices and plugins ---------------------------------------------------------------


def _on_devices(operation: str, done: str) -> _Action:
    def act(api: ServedApi, args: argparse.Namespace) -> int:
        for id_ in dict.fromkeys(args.devices):
            api.ask(operation, args.node, body=shapes.Device(resource=args.resource, device=id_))
            _say(args.node, f"device {args.resource}/{id_} {done}")
        return 0

    return act


fail_device = _on_devices("failDevice", "failed")
recover_device = _on_devices("recoverDevice", "recovered")
lose_device = _on_devices("loseDevice", "lost")
return_device = _on_devices("returnDevice", "returned")


def _on_plugin(operation: str, done: str) -> _Action:
    def act(api: ServedApi, args: argparse.Namespace) -> int:
        api.ask(operation, args.node, body=shapes.Resource(resource=args.resource))
        _say(args.node, f"plugin {args.resource} {done}")
        return 0

    return act


stop_plugin = _on_plugin("stopPlugin", "stopped")
start_plugin = _on_plugin("startPlugin", "started")


def zero_capacity(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes zero-capacity``."""
    body = shapes.ZeroCapacity(resource=args.resource, zero=not args.off)
    api.ask("zeroCapacity", args.node, body=body)
    listed = "its devices again" if args.off else "nothing"
    _say(args.node, f"plugin {args.resource} lists {listed}")
    return 0


# -- what nodes say of themselves ------------------------------------------------------


def not_ready(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes not-ready``."""
    message = "" if args.off else args.message
    body = shapes.NotReady() if message is None else shapes.NotReady(message=message)
    # It may not be ready still: what the annotation says counts besides.
    done = "no longer made not ready" if args.off else "made not ready"
    return _each(api, args, "setNotReady", done, body=body)


def pressure(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes pressure``."""
    conditions = [Pressure(each) for each in args.conditions or ()]
    body = shapes.Pressures(conditions=conditions)
    return _each(api, args, "setPressure", ",".join(conditions) or "no pressure", body=body)


def silent(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes silent``."""
    body = shapes.Silence(silent=not args.off)
    return _each(api, args, "silence", "heard of again" if args.off else "silent", body=body)


def reboot(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes reboot``."""
    return _each(api, args, "rebootNode", "rebooted")


def restart(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes restart``."""
    return _each(api, args, "restartKubelet", "kubelet restarted")


def leave(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes leave``."""
    done = f"has left and is {_LEFT[args.how]}"
    return _each(api, args, "leave", done, query={"how": args.how}, timeout=_LEAVING)


def _each(api: ServedApi, args: argparse.Namespace, operation: str, done: str, **more: Any) -> int:
    """Ask it of all nodes that are named, or of none if one is not there."""
    names = dict.fromkeys(args.nodes)
    if len(names) > 1:
        _check(api, names, {each.name for each in api.ask("listNodes").items})
    for name in names:
        api.ask(operation, name, **more)
        _say(name, done)
    return 0


def _check(api: ServedApi, names: Iterable[str], there: Container[str]) -> None:
    """The server says so of a node that is not there."""
    for name in names:
        if name not in there:
            api.ask("getNode", name)


def _say(node: str, done: str) -> None:
    print(clean(f"node {node}: {done}"))


# -- pods ------------------------------------------------------------------------------


def evict(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes evict``."""
    for pod in _pods(api, args.node, args.pods):
        api.ask("evictPod", args.node, pod.uid, body=shapes.Eviction(resource=args.resource))
        _say(args.node, f"pod {pod.namespace}/{pod.name} evicted")
    return 0


def exit_container(api: ServedApi, args: argparse.Namespace) -> int:
    """``ctl nodes exit-container``."""
    (pod,) = _pods(api, args.node, [args.pod])
    body = shapes.Exit(exit_code=args.exit_code, reason=args.reason)
    api.ask("exitContainer", args.node, pod.uid, args.container, body=body)
    what = f"container {args.container} of pod {pod.namespace}/{pod.name}"
    _say(args.node, f"{what} ended with {args.exit_code}")
    return 0


def _pods(api: ServedApi, node: str, names: Sequence[str]) -> list[shapes.Pod]:
    found: shapes.Node = api.ask("getNode", node)
    advice = f"`devicemanager ctl nodes show {node}` lists those of the node"
    return ctl_client.pods_among(found.pod_list, names, advice)
