"""The flags of ``devicemanager join``, and what they stand for."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import settings_options
from devicemanager.cli.device_option import EXAMPLES, FORM, OnePerResource, device_option
from devicemanager.cli.options import CommandError, rejected_server

if TYPE_CHECKING:
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.facts import Facts
    from devicemanager.cluster.node_specs import Members
    from devicemanager.cluster.options import NodeOptions
    from devicemanager.kubelet.telemetry import NodeInfo
    from devicemanager.observe.web.nodes import NodesServer

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?")
_VALUE = re.compile(r"([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?")
_DEMO_NODES = 10
_DEMO_DEVICES = "vendor.com/gpu=8"


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which cluster, and as whom."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster's (default: KUBECONFIG, ~/.kube/config or the pod's service account)",
    )
    group.add_argument("--context", metavar="NAME", help="one of the kubeconfig's")
    group.add_argument(
        "--demo",
        action="store_true",
        help="no cluster: an API server in Python on loopback, ten nodes and a Job",
    )
    group.add_argument(
        "--as-nodes",
        nargs="?",
        const=True,
        default=False,
        choices=("strict",),
        help="write as the user system:node:NAME, so that NodeRestriction applies; strict: list "
        "and watch so, too, with two watches for each node; takes the right to impersonate",
    )
    group.add_argument(
        "--lease-duration",
        type=settings_options.number(int, 4),
        default=40,
        metavar="SECONDS",
        help="of the nodes' leases, renewed after a quarter of it (default: 40)",
    )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """How many, and what they are like."""
    group = parser.add_argument_group("nodes")
    group.add_argument(
        "--nodes",
        type=settings_options.number(int, 1),
        default=1,
        metavar="N",
        help="how many (default: 1)",
    )
    group.add_argument(
        "--prefix",
        type=_prefix,
        default="virtual",
        metavar="NAME",
        help="they are called NAME-0, NAME-1 and so on (default: virtual)",
    )
    group.add_argument(
        "--simulate",
        metavar=FORM,
        type=device_option,
        action=OnePerResource,
        default=[],
        help=f"virtual devices of each light node: {EXAMPLES}; may be repeated",
    )
    group.add_argument(
        "--full",
        type=settings_options.number(int, 0),
        default=0,
        metavar="N",
        help="the first N are whole kubelets with sockets in ROOT/node-0 and so on, for plugins "
        "that register there",
    )
    group.add_argument(
        "--label", type=_label, action="append", default=[], metavar="KEY=VALUE", help="a label"
    )
    group.add_argument(
        "--taint",
        type=_taint,
        action="append",
        default=[],
        metavar="KEY=VALUE:EFFECT",
        help="a taint; ours keeps pods away that do not tolerate devicemanager.io/virtual",
    )
    group.add_argument("--no-taint", action="store_true", help="without our own taint")
    group.add_argument(
        "--leave",
        choices=("delete", "keep", "shutdown"),
        default="delete",
        help="at the end delete the nodes, keep them, or shut them down, which ends their pods "
        "first (default: delete)",
    )
    group.add_argument(
        "--on-deleted",
        choices=("leave", "stay", "register"),
        default="leave",
        help="when somebody deletes a node: it has left, it does as a kubelet, which only a "
        "restart registers again, or it registers again (default: leave)",
    )
    group.add_argument(
        "--node-resource-topology",
        action="store_true",
        help="also keep a NodeResourceTopology object for each node, for schedulers that look "
        "at NUMA nodes; takes the rights create, patch and delete on them",
    )
    group.add_argument(
        "--events", action="store_true", help="also Pulled, Created, Started and Killing events"
    )


def add_containers(parser: argparse.ArgumentParser) -> None:
    """What containers do, since none runs."""
    group = parser.add_argument_group(
        "containers",
        "Facts about all pods; annotations of a pod such as "
        "devicemanager.io/run-for say otherwise.",
    )
    group.add_argument(
        "--start-delay", metavar="TIME", type=_span, help="until they run, such as 1s±0.5"
    )
    group.add_argument(
        "--job-duration",
        metavar="TIME",
        type=_span,
        help="how long those of Jobs run (default: 1s); others run for ever",
    )
    group.add_argument(
        "--exit-code-on-delete",
        type=settings_options.number(int, 0),
        default=143,
        metavar="CODE",
        help="of containers that are told to end (default: 143, as SIGTERM leaves it)",
    )


def add_http(parser: argparse.ArgumentParser) -> None:
    """What kubelets serve over HTTP."""
    group = parser.add_argument_group("HTTP")
    group.add_argument(
        "--http",
        metavar="ADDRESS:PORT",
        help="serve /nodes/NAME/pods, /nodes/NAME/metrics, logs and /healthz of all nodes there",
    )
    group.add_argument(
        "--http-allow-remote",
        action="store_true",
        help="let --http be an address that other hosts can reach; whoever does may read",
    )
    group.add_argument(
        "--http-certificate",
        nargs=2,
        metavar=("CERTIFICATE", "KEY"),
        help="files in PEM form: serve HTTPS, which the API server needs for `kubectl logs`",
    )


def check_http(args: argparse.Namespace) -> None:
    """Raises CommandError for flags that are of no use."""
    if args.http is None and (args.http_allow_remote or args.http_certificate):
        raise CommandError("--http-allow-remote and --http-certificate go with --http")
    if args.http_certificate and not _port(args.http):
        raise CommandError(
            f"--http {args.http}: nodes announce where their logs are, so give the port as a number"
        )


def http_server(args: argparse.Namespace, cluster: Cluster) -> NodesServer | None:
    """The server that was asked for, not started. Raises CommandError."""
    if args.http is None:
        return None
    certificate, key = map(Path, args.http_certificate) if args.http_certificate else (None, None)

    def kubelets() -> Mapping[str, NodeInfo]:
        return {name: node.kubelet for name, node in cluster.nodes.items()}

    with rejected_server("http"):
        from devicemanager.observe.web.nodes import NodesServer

        return NodesServer(
            args.http,
            kubelets,
            allow_remote=args.http_allow_remote,
            certfile=certificate,
            keyfile=key,
        )


def add_sharing(parser: argparse.ArgumentParser) -> None:
    """Several processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--shard", metavar="K/N", type=_shard, help="run only every Nth node, from node K on"
    )
    group.add_argument(
        "--shards",
        type=settings_options.number(int, 1),
        metavar="N",
        help="claim parts of N: several processes share the nodes, and one takes over what "
        "another leaves",
    )
    group.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "default"),
        metavar="NAME",
        help="where claims are (default: POD_NAMESPACE, or default)",
    )


# -- what they stand for ---------------------------------------------------------------


def set_demo(args: argparse.Namespace) -> None:
    """Fill in what --demo leaves open. Raises CommandError for what does not go with it."""
    for name in ("kubeconfig", "context"):
        if getattr(args, name) is not None:
            raise CommandError(f"--demo has a cluster of its own: leave --{name} out")
    if not args.simulate:
        args.simulate = [device_option(_DEMO_DEVICES)]
    if args.nodes == 1:
        args.nodes = _DEMO_NODES
    if args.job_duration is None:
        args.job_duration = _span("2s±1")


def check_sharing(args: argparse.Namespace) -> None:
    """Raises CommandError for flags that contradict each other."""
    if args.shard is not None and args.shards is not None:
        raise CommandError("--shard is by hand and --shards by claim: give one of them")
    if args.full and args.root is None and args.shards is not None:
        raise CommandError("--full with --shards: give a --root that all processes can reach")


def identity() -> str:
    """Who claims: the pod's name, or one of this process alone."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{secrets.token_hex(4)}"


def members(args: argparse.Namespace) -> Members:
    """The nodes that are asked for. Raises CommandError."""
    from devicemanager.cluster.node_specs import light_members
    from devicemanager.kubelet.inmemory.devices import numbered

    simulate = {
        option.resource: tuple(numbered(option.resource, option.nodes).values())
        for option in args.simulate
    }
    numa = {node for option in args.simulate for node in option.nodes if node is not None}
    return light_members(
        args.prefix,
        args.nodes,
        simulate,
        settings_options.settings_from(args, numa),
        node_options(args),
        facts(args),
        full=args.full,
        root=None if args.root is None else Path(args.root).absolute(),
    )


def node_options(args: argparse.Namespace) -> NodeOptions:
    """What the nodes are like."""
    from devicemanager.cluster.options import VIRTUAL_TAINT, NodeOptions

    return NodeOptions(
        labels=dict(args.label),
        taints=(*(() if args.no_taint else (VIRTUAL_TAINT,)), *args.taint),
        on_deleted=args.on_deleted,
        all_events=args.events,
        topology=args.node_resource_topology,
        port=_port(args.http) if args.http_certificate else 0,
    )


def facts(args: argparse.Namespace) -> Facts:
    """What containers do."""
    from devicemanager.cluster.facts import Facts

    given = {"start_delay": args.start_delay, "job_duration": args.job_duration}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Facts(**chosen, exit_code_on_delete=args.exit_code_on_delete)


def _port(address: str | None) -> int:
    """The port that nodes announce, which the API server dials."""
    text = (address or "").rpartition(":")[2]
    return int(text) if text.isdecimal() else 0


# -- reading ---------------------------------------------------------------------------


def _prefix(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name: use a to z, 0 to 9 and -")
    return text


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE")
    return key, value


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if effect not in _EFFECTS or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        effects = " or ".join(_EFFECTS)
        raise argparse.ArgumentTypeError(f"{text!r} is not like KEY=VALUE:EFFECT with {effects}")
    return {"key": key, "value": value, "effect": effect}


def _span(text: str) -> object:
    from devicemanager.cluster.facts import Range

    try:
        return Range.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _shard(text: str) -> object:
    from devicemanager.cluster.shard import shard_option

    try:
        return shard_option(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
