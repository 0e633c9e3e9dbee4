"""Flags of ``devicemanager join``, and the objects that are created from them."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli import join_slices, join_values, settings_options
from devicemanager.cli.files import add_file, file_name
from devicemanager.cli.options import CommandError, add_repeated, rejected_server
from devicemanager.cli.server_options import HTTP_DEFAULT

if TYPE_CHECKING:
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.container_behaviour import ContainerBehaviour
    from devicemanager.cluster.durations import Range
    from devicemanager.cluster.node_specs import NodeSpecs
    from devicemanager.cluster.options import NodeOptions
    from devicemanager.cluster.shard import Shard
    from devicemanager.core.devices import Device
    from devicemanager.core.usage import Amount
    from devicemanager.fleet import Fleet
    from devicemanager.kubelet.settings import Settings
    from devicemanager.kubelet.telemetry import NodeInfo
    from devicemanager.observe.web.nodes import NodesServer

# A limit of 40 characters leaves room for the number and for the names of mirror pods.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the cluster and its credentials."""
    group = parser.add_argument_group("cluster")
    add_file(
        group,
        "--kubeconfig",
        "kubeconfig of the cluster (default: KUBECONFIG, ~/.kube/config or the pod's "
        "service account)",
    )
    group.add_argument("--context", metavar="NAME", help="context in the kubeconfig")
    group.add_argument(
        "--demo",
        action="store_true",
        help="use a fake API server on loopback instead of a cluster, with ten nodes and a Job",
    )
    group.add_argument(
        "--as-nodes",
        nargs="?",
        # Without a value, only writes are impersonated.
        const=True,
        default=False,
        choices=("strict",),
        help="impersonate system:node:NAME in writes, so that NodeRestriction applies; strict: "
        "also in LIST and WATCH, with two watches per node; requires the verb impersonate",
    )
    group.add_argument(
        "--lease-duration",
        # With less than 4 s, each lease would be renewed more than once per second.
        type=settings_options.number(int, 4),
        default=40,
        metavar="SECONDS",
        help="duration of the nodes' leases; they are renewed after a quarter of it (default: 40)",
    )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the number and the properties of the nodes."""
    group = parser.add_argument_group("nodes")
    group.add_argument(
        "--nodes",
        type=settings_options.number(int, 1),
        default=1,
        metavar="N",
        help="number of nodes (default: 1)",
    )
    add_file(
        group,
        "-f",
        "kinds of nodes in YAML, with the number of nodes, labels, taints, capacity, devices and "
        "drivers of each kind; the other flags are defaults for all kinds",
        dest="file",
    )
    group.add_argument(
        "--adopt",
        metavar="SELECTOR",
        help="run a virtual node for each Node object with these labels, such as "
        "karpenter.sh/nodepool=gpu; another program, such as an autoscaler, creates and deletes "
        "the objects, and `join` does not delete them",
    )
    group.add_argument(
        "--prefix",
        type=_prefix,
        metavar="NAME",
        help="name the nodes NAME-0, NAME-1 and so on (default: virtual-HOST, or virtual with "
        "--demo, --shard and --shards)",
    )
    add_file(
        group,
        "--fleet",
        "create the nodes and pods of this archive of `devicemanager snapshot cluster`; flags for "
        "the topology and the kubelet version override the values of the nodes",
    )
    group.add_argument(
        "--take-over",
        action="store_true",
        help="take over existing nodes with the same names, even if another process runs them",
    )
    group.add_argument(
        "--simulate",
        metavar=settings_options.DEVICES_FORM,
        type=settings_options.device_option,
        action=settings_options.OnePerResource,
        default=[],
        help=f"simulated devices of each in-memory node: "
        f"{settings_options.DEVICES_EXAMPLES} ({settings_options.DEVICES_MEANING}); can be "
        "repeated",
    )
    group.add_argument(
        "--simulate-driver",
        metavar="NAME=DEVICES",
        type=join_slices.driver_option,
        action="append",
        default=[],
        help="simulated DRA driver of each in-memory node, which publishes ResourceSlices: "
        "gpu.example.com=8, or gpu.example.com=8@0,1 for devices on NUMA nodes; can be repeated",
    )
    add_repeated(
        group,
        "--slices",
        "FILE",
        "ResourceSlices of one node in YAML or JSON: each in-memory node publishes such devices",
        type=file_name,
    )
    group.add_argument(
        "--slices-delay",
        type=duration,
        metavar="TIME",
        help="time until drivers publish slices again after the kubelet has deleted them "
        "(default: 1.75s±0.75)",
    )
    group.add_argument(
        "--device-status",
        action="store_true",
        help="DRA drivers write status.devices of prepared ResourceClaims",
    )
    group.add_argument(
        "--full",
        type=settings_options.number(int, 0),
        default=0,
        metavar="N",
        help="run the first N nodes as mock kubelets with sockets in ROOT/node-0 and so on, for "
        "real plugins",
    )
    group.add_argument(
        "--cpu",
        type=join_values.quantity_option,
        metavar="QUANTITY",
        help="CPU of each node (default: 64)",
    )
    group.add_argument(
        "--memory",
        type=join_values.quantity_option,
        metavar="QUANTITY",
        help="memory of each node (default: 256Gi)",
    )
    group.add_argument(
        "--pods",
        type=settings_options.number(int, 1),
        metavar="N",
        help="number of pods that each node can run (default: 110)",
    )
    group.add_argument(
        "--pod-cidr",
        type=_pod_cidr,
        metavar="CIDR",
        help="range of the pods' addresses, which all nodes share (default: 198.18.0.0/15)",
    )
    add_repeated(group, "--label", "KEY=VALUE", "label of the nodes", type=join_values.label_option)
    add_repeated(
        group,
        "--taint",
        "KEY=VALUE:EFFECT",
        "taint of the nodes, in addition to devicemanager.io/virtual",
        type=join_values.taint_option,
    )
    group.add_argument(
        "--no-taint", action="store_true", help="do not add the devicemanager.io/virtual taint"
    )
    group.add_argument(
        "--leave",
        choices=("delete", "keep", "shutdown"),
        default="delete",
        help="at exit, delete the nodes, keep them, or shut them down, which stops their pods "
        "first (default: delete)",
    )
    group.add_argument(
        "--on-deleted",
        choices=("leave", "stay", "register"),
        default="leave",
        help="when a node is deleted: leave, stay (like a kubelet, re-register only after a "
        "restart) or register immediately (default: leave)",
    )
    group.add_argument(
        "--node-resource-topology",
        action="store_true",
        help="publish a NodeResourceTopology object for each node, for schedulers that read NUMA "
        "nodes; requires the verbs create, patch and delete on them",
    )
    group.add_argument(
        "--events",
        action="store_true",
        help="also create the Events Pulled, Created, Started and Killing",
    )


def add_containers(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the behaviour of containers, such as their run time."""
    group = parser.add_argument_group(
        "containers",
        "Defaults for all pods. Annotations of a pod, such as devicemanager.io/run-for, override "
        "them.",
    )
    group.add_argument(
        "--start-delay",
        metavar="TIME",
        type=duration,
        help="time from admission until containers start, such as 1s, or 1s±0.5 for a random time "
        "from 0.5 to 1.5 s (also written 1s+-0.5)",
    )
    group.add_argument(
        "--job-duration",
        metavar="TIME",
        type=duration,
        help="run time of containers of Jobs (default: 1s); other containers do not end",
    )
    group.add_argument(
        "--exit-code-on-delete",
        type=settings_options.number(int, 0),
        default=143,
        metavar="CODE",
        help="exit code of containers that are stopped (default: 143, for SIGTERM)",
    )

    for name, resource, form in (
        ("cpu", "CPU that each container uses", "500m, or 80%% of its request"),
        ("memory", "memory that each container uses", "1Gi, or 80%% of its request"),
        ("gpu", "utilization of each allocated GPU", "80%%"),
        ("gpu-memory", "used memory of each allocated GPU", "10Gi or 80%%"),
    ):
        group.add_argument(
            f"--{name}-usage",
            metavar="PERCENT" if name == "gpu" else "AMOUNT",
            type=_share if name == "gpu" else _usage,
            help=f"{resource}, such as {form}, in the metrics of --http (default: 0)",
        )


def add_http(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the HTTP server of the nodes."""
    group = parser.add_argument_group("HTTP")
    group.add_argument(
        "--http",
        nargs="?",
        const=HTTP_DEFAULT,
        metavar="ADDRESS:PORT",
        help="serve /nodes/NAME/pods, /nodes/NAME/metrics/resource, logs and /healthz of all nodes "
        f"(default address: {HTTP_DEFAULT})",
    )
    group.add_argument(
        "--http-allow-remote",
        action="store_true",
        help="allow an address that other hosts can reach; they can then read everything",
    )
    group.add_argument(
        "--http-certificate",
        nargs=2,
        metavar=("CERTIFICATE", "KEY"),
        type=file_name,
        help="serve HTTPS with these PEM files; the API server requires it for `kubectl logs`",
    )


def check_http(args: argparse.Namespace) -> None:
    """Raise CommandError if other HTTP flags are given without --http. Also raise it if
    --http-certificate is given and --http has no fixed port."""
    if args.http is None and (args.http_allow_remote or args.http_certificate):
        raise CommandError("--http-allow-remote and --http-certificate require --http")
    # With port 0, the system would choose the port after the nodes have announced it.
    if args.http_certificate and not _port(args.http):
        raise CommandError(
            f"invalid --http {args.http}: --http-certificate requires a port number, which the "
            "nodes announce for logs"
        )


def http_server(args: argparse.Namespace, cluster: Cluster) -> NodesServer | None:
    """Create the HTTP server of the nodes if ``--http`` is given, without starting it. Raises
    CommandError."""
    if args.http is None:
        return None
    certificate, key = map(Path, args.http_certificate) if args.http_certificate else (None, None)

    # A function, because nodes join and leave while the server runs.
    def kubelets() -> Mapping[str, NodeInfo]:
        return {name: node.kubelet for name, node in cluster.nodes.items()}

    with rejected_server("http"):
        # Imported here, because it needs the extra ``http``.
        from devicemanager.observe.web.nodes import NodesServer

        return NodesServer(
            args.http,
            kubelets,
            allow_remote=args.http_allow_remote,
            certfile=certificate,
            keyfile=key,
        )


def add_sharing(parser: argparse.ArgumentParser) -> None:
    """Add the flags that divide the virtual nodes among several ``join`` processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--shard",
        metavar="K/N",
        type=_shard,
        help="run only every Nth node; K is 0 to N-1, such as 0/3, 1/3 and 2/3",
    )
    group.add_argument(
        "--shards",
        type=settings_options.number(int, 1),
        metavar="N",
        help="divide the nodes into N shards, which all processes share; a process takes over the "
        "shards of one that exits",
    )
    group.add_argument(
        "--namespace",
        # The role in deploy/join.yaml allows leases in the namespace of the pod.
        default=os.environ.get("POD_NAMESPACE", "default"),
        metavar="NAME",
        help="namespace of the shards' leases (default: POD_NAMESPACE, or default)",
    )


# -- from flags to options -------------------------------------------------------------


def check_sharing(args: argparse.Namespace) -> None:
    """Raise CommandError if --shard and --shards are both given. Also raise it for --full together
    with --shards, unless --root is given."""
    if args.shard is not None and args.shards is not None:
        raise CommandError("--shard and --shards exclude each other: use one of them")
    # A process that takes over a shard needs the state in the nodes' directories.
    if args.full and args.root is None and args.shards is not None:
        raise CommandError("--full with --shards requires a --root that all processes can reach")


def identity() -> str:
    """Return the identity of this process in leases: the pod's name, or the host name and a random
    suffix."""
    # Random outside a pod, because two processes on one machine must have different identities.
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{secrets.token_hex(4)}"


def node_kinds(args: argparse.Namespace, fleet: Fleet | None = None) -> tuple[NodeSpecs, ...]:
    """Return the specifications of the nodes to add, one per kind of node.

    If ``fleet`` is None, the flags define the nodes. Otherwise, the nodes are copies of the nodes
    in ``fleet``, a recorded cluster.

    Raises CommandError, FleetError, SnapshotError and OSError.
    """
    if args.adopt is not None:
        _check_adoption(args, fleet)
        # No node yet: each one is created when its Node object appears (``adopt``).
        return (node_specs(args).resized(0),)
    if args.file is None:
        return (node_specs(args, fleet),)
    if fleet is not None:
        raise CommandError("-f and --fleet exclude each other: use one of them")
    if args.full or args.simulate:
        raise CommandError("--full and --simulate cannot be used with -f: remove them")
    from devicemanager.cli.join_kinds import kinds_of
    from devicemanager.cluster.node_specs import NodeSpecs
    from devicemanager.kubelet.inmemory.devices import places

    prefix = args.prefix or _default_prefix(args)

    def make(kind: Mapping[str, Any]) -> NodeSpecs:
        # Devices without a NUMA node, or on node 0, do not change the number of NUMA nodes.
        numa = {node for text in kind["simulate"].values() for node in places(text) if node}
        return NodeSpecs.numbered(
            f"{prefix}-{kind['kind']}",
            settings=settings_options.settings_from(args, numa),
            behaviour=_container_behaviour(args),
            **kind,
        )

    return kinds_of(args, node_options(args), make)


def _check_adoption(args: argparse.Namespace, fleet: Fleet | None) -> None:
    given = {
        "-f": args.file,
        "--fleet": fleet,
        "--full": args.full,
        "--shard": args.shard,
        "--shards": args.shards,
        "--demo": args.demo,
    }
    for flag, value in given.items():
        if value:
            raise CommandError(f"--adopt and {flag} exclude each other: use one of them")


def adopt(args: argparse.Namespace, cluster: Cluster) -> None:
    """Run a virtual node for each Node object with the labels of --adopt, also for objects that are
    created later.

    Raises CommandError.
    """
    simulate, settings = _devices(args)
    cluster.adopt(
        args.adopt,
        simulate,
        settings=settings,
        options=node_options(args),
        behaviour=_container_behaviour(args),
    )


def _devices(args: argparse.Namespace) -> tuple[dict[str, tuple[Device, ...]], Settings]:
    """Return the simulated devices that each node gets, by resource, and the kubelets' settings."""
    from devicemanager.kubelet.inmemory.devices import numbered

    # IDs are numbered per node, so that every node has gpu-0, as real nodes do.
    simulate = {
        option.resource: tuple(numbered(option.resource, option.nodes).values())
        for option in args.simulate
    }
    # A node has the NUMA nodes of its devices, unless flags define others.
    numa = {node for option in args.simulate for node in option.nodes if node is not None}
    return simulate, settings_options.settings_from(args, numa)


def node_specs(args: argparse.Namespace, fleet: Fleet | None = None) -> NodeSpecs:
    """Return the specification of the nodes to add, for a command without ``-f``.

    If ``fleet`` is None, the flags define the nodes. Otherwise, the nodes are copies of the nodes
    in ``fleet``, a recorded cluster.

    Raises CommandError, FleetError and SnapshotError.
    """
    from devicemanager.client.credentials import kubeconfig_path
    from devicemanager.cluster.node_specs import NodeSpecs

    simulate, settings = _devices(args)
    # Full nodes read ResourceClaims. In a pod without a kubeconfig, they cannot.
    kubeconfig = kubeconfig_path(args.kubeconfig) if args.full else None
    numbered_specs = NodeSpecs.numbered(
        args.prefix or _default_prefix(args),
        args.nodes,
        simulate,
        settings=settings,
        options=node_options(args),
        behaviour=_container_behaviour(args),
        full=args.full,
        root=None if args.root is None else Path(args.root).absolute(),
        kubeconfig=None if kubeconfig is None else Path(kubeconfig),
    )
    return numbered_specs if fleet is None else _fleet_specs(args, fleet, numbered_specs)


def _fleet_specs(args: argparse.Namespace, fleet: Fleet, base: NodeSpecs) -> NodeSpecs:
    from devicemanager.fleet.joining import FleetSpecs
    from devicemanager.rehearsal import Configure

    # An explicit ``--nodes 1`` looks the same as the default.
    defaults = {"nodes": 1, "full": 0, "simulate": [], "prefix": None}
    for flag, default in defaults.items():
        if getattr(args, flag) not in (None, default):
            raise CommandError(f"--fleet has its own nodes: remove --{flag}")
    changes = Configure(
        args.kubelet_version, args.topology_policy, args.topology_scope, dict(args.topology_options)
    )
    return FleetSpecs.of(fleet, base, changes)


def node_options(args: argparse.Namespace) -> NodeOptions:
    from devicemanager.cluster.options import (
        AMOUNTS,
        POD_CIDR,
        SLICES_DELAY,
        VIRTUAL_TAINT,
        NodeOptions,
    )
    from devicemanager.core.quantity import Quantity

    pods = None if args.pods is None else Quantity.parse(str(args.pods))
    given = {"cpu": args.cpu, "memory": args.memory, "pods": pods}
    return NodeOptions(
        labels=dict(args.label),
        taints=(*(() if args.no_taint else (VIRTUAL_TAINT,)), *args.taint),
        amounts={**AMOUNTS, **{name: each for name, each in given.items() if each is not None}},
        pod_cidr=args.pod_cidr or POD_CIDR,
        on_deleted=args.on_deleted,
        all_events=args.events,
        topology=args.node_resource_topology,
        # The API server requests logs only over HTTPS, so a port without a certificate is not
        # announced.
        port=_port(args.http) if args.http_certificate else 0,
        drivers=join_slices.layouts(args),
        slices_delay=args.slices_delay or SLICES_DELAY,
        device_status=args.device_status,
    )


def _container_behaviour(args: argparse.Namespace) -> ContainerBehaviour:
    from devicemanager.cluster.container_behaviour import ContainerBehaviour
    from devicemanager.core.usage import Amount, Usage

    given = {"start_delay": args.start_delay, "job_duration": args.job_duration}
    # Omitted flags keep the defaults of ContainerBehaviour.
    chosen = {name: value for name, value in given.items() if value is not None}
    return ContainerBehaviour(
        **chosen,
        exit_code_on_delete=args.exit_code_on_delete,
        usage=Usage(
            args.cpu_usage or Amount(),
            args.memory_usage or Amount(),
            args.gpu_usage or Amount(),
            args.gpu_memory_usage or Amount(),
        ),
    )


def _port(address: str | None) -> int:
    """Return the port number in ``address``, or 0 if there is none. The nodes report this port in
    their status."""
    text = (address or "").rpartition(":")[2]
    return int(text) if text.isdecimal() else 0


# -- parsing ---------------------------------------------------------------------------


def _default_prefix(args: argparse.Namespace) -> str:
    """Return a prefix with the host name, so that two machines do not create the same nodes.

    Shards of one set of nodes run on several machines, so their prefix has no host name.
    """
    if args.demo or args.shard is not None or args.shards is not None:
        return "virtual"
    host = re.sub("[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return f"virtual-{host[:_LONGEST_HOST].strip('-')}" if host else "virtual"


# With the beginning ``virtual-``, the prefix stays below the 40 characters of ``_NAME``.
_LONGEST_HOST = 30


def _prefix(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"invalid name {text!r}: use a to z, 0 to 9 and -, at most 40 characters"
        )
    return text


def _pod_cidr(text: str) -> str:
    from devicemanager.cluster.addresses import pod_network

    try:
        return str(pod_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> Range:
    """Parse a duration such as ``1s``, or a range of durations such as ``1s±0.5s``. Raises
    ArgumentTypeError."""
    from devicemanager.cluster.durations import Range

    try:
        return Range.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _usage(text: str) -> Amount:
    from devicemanager.core.usage import Amount

    try:
        return Amount.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _share(text: str) -> Amount:
    from devicemanager.core.usage import Amount

    try:
        return Amount.parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _shard(text: str) -> Shard:
    from devicemanager.cluster.shard import shard_option

    try:
        return shard_option(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
