"""``devicemanager join``: virtual nodes in a real cluster until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import control_option, files, join_options, live, settings_options
from devicemanager.cli.options import CommandError, add_format, command

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.cli.live import Display
    from devicemanager.cli.options import Subparsers
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.demo_cluster import Demo
    from devicemanager.cluster.node_specs import Members
    from devicemanager.observe.view import ClusterView

_LEAVING = {
    "delete": "deleting the nodes",
    "keep": "the nodes are kept",
    "shutdown": "shutting the nodes down",
}
_REPORT = 10.0
_DEMO_REPORT = 1.0
"""Seconds between two lines about what is going on."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(
        subparsers,
        "join",
        _run,
        "add virtual nodes to a real cluster",
        description="Add nodes to a Kubernetes cluster whose devices our device managers hand "
        "out: the cluster's scheduler binds pods, each node admits or rejects them as a kubelet "
        "would. No container runs. End at SIGTERM or Ctrl-C, and take the nodes away. Show the "
        "nodes live on a terminal, and elsewhere print lines.",
    )
    join_options.add_cluster(parser)
    join_options.add_nodes(parser)
    join_options.add_containers(parser)
    join_options.add_sharing(parser)
    join_options.add_http(parser)
    control_option.add_control(parser)
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=files.directory,
        help="where full nodes have their directories, and the control API its socket (default: "
        "a new one under /tmp, removed at the end)",
    )
    parser.usage = "%(prog)s [options]"
    add_format(parser, "text", "json")
    live.add_live(parser)
    settings_options.add_topology(parser)
    settings_options.add_admission(parser)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals

    with StopSignals() as signals, contextlib.ExitStack() as stack:
        failures: list[OSError] = []
        display = live.display_until(args, signals, failures, stack)
        try:
            demo = stack.enter_context(_demo(args, display.log))
            with contextlib.suppress(Stopped):
                _join(args, display, signals, stack, demo)
        finally:
            display.close()
        if signals.came:
            display.log.say("leaving", f"leaving: {_LEAVING[args.leave]}")
    if failures:
        raise failures[0]
    return 0


@contextlib.contextmanager
def _demo(args: argparse.Namespace, log: KubeletLog) -> Iterator[Demo | None]:
    """A cluster of its own for --demo."""
    if not args.demo:
        yield None
        return
    from devicemanager.cluster.demo_cluster import Demo

    join_options.set_demo(args)
    with Demo() as demo:
        args.kubeconfig = str(demo.kubeconfig)
        log.say("demo", f"demo: an API server in Python serves {demo.url}", url=demo.url)
        yield demo


def _join(
    args: argparse.Namespace,
    display: Display,
    signals: StopSignals,
    stack: contextlib.ExitStack,
    demo: Demo | None,
) -> None:
    from devicemanager.cluster.cluster import Cluster

    log = display.log
    members = join_options.members(args)
    join_options.check_sharing(args)
    join_options.check_http(args)
    control_option.check_control(args)
    with signals.interruptible():
        cluster = Cluster.connect(
            args.kubeconfig,
            context=args.context,
            as_nodes=args.as_nodes,
            lease_duration=args.lease_duration,
            warn=lambda text: log.warn("cluster", text),
        )
    stack.callback(cluster.close, args.leave)
    if (server := join_options.http_server(args, cluster)) is not None:
        stack.enter_context(server)
        log.say("http", f"HTTP of the nodes: {server.address}", address=server.address)
    if args.control is not None:
        control = control_option.nodes_control_server(args, cluster, _directory(args, stack))
        stack.enter_context(control)
        control_option.tell(control, log)
    display.show(lambda: _look(cluster))
    began = time.monotonic()
    with signals.interruptible(), display.waiting(f"for {len(members.names)} nodes to join"):
        _start(args, cluster, members, log)
    seconds = time.monotonic() - began
    count = len(cluster.nodes)
    if args.shards is None:
        text = f"{count} nodes joined in {seconds:.1f} s"
        log.say("joined", text, nodes=count, seconds=seconds)
    else:
        text = f"claims shards of {len(members.names)} nodes, which join as theirs is taken"
        log.say("sharing", text, shards=args.shards)
    if demo is not None:
        demo.submit()
        log.say("demo", "demo: a Job of 40 pods was created, each with one GPU")
    log.say("ready", "ready; Ctrl-C leaves")
    _follow(cluster, log, signals, _REPORT if demo is None else _DEMO_REPORT)


def _directory(args: argparse.Namespace, stack: contextlib.ExitStack) -> Path:
    """Where the control API has its socket."""
    if args.root is None:
        from devicemanager.kubelet.directories import TemporaryRoot

        made = TemporaryRoot(stack)
        stack.callback(made.remove)
        return made.path
    root = Path(args.root).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--root {args.root}: {error.strerror}") from None
    return root


def _look(cluster: Cluster) -> Callable[[], ClusterView]:
    from devicemanager.observe.view import ClusterPictures

    return ClusterPictures(cluster.url, lambda: cluster.nodes).look


def _start(args: argparse.Namespace, cluster: Cluster, members: Members, log: KubeletLog) -> None:
    findings = cluster.check(
        members.names, shards=args.shards is not None, namespace=args.namespace
    )
    log.say("cluster", f"cluster: {cluster.url}, {findings.version}", url=cluster.url)
    if findings.cloud:
        log.warn(
            "cloud",
            f"a cloud controller may delete our nodes, since no machine stands behind them: "
            f"{findings.cloud}",
        )
    if findings.existing:
        log.say("taken-over", f"{len(findings.existing)} of the nodes are there: taken over")
    if args.shards is None:
        cluster.join_members(members, args.shard)
        return
    cluster.share(members, args.shards, args.namespace, join_options.identity())


def _follow(cluster: Cluster, log: KubeletLog, signals: StopSignals, every: float) -> None:
    """Say what changed, now and then, until a signal."""
    said = ""
    while True:
        text, facts = _report(cluster)
        if text != said:
            log.say("nodes", text, **facts)
            said = text
        with signals.interruptible():
            time.sleep(every)


def _report(cluster: Cluster) -> tuple[str, dict[str, int]]:
    count = cluster.pod_counts()
    pods = ", ".join(f"{number} {phase.lower()}" for phase, number in count.items() if number)
    facts = {"nodes": len(cluster.nodes), **{k.lower(): v for k, v in count.items()}}
    return f"{len(cluster.nodes)} nodes; pods: {pods or 'none'}", facts
