"""``devicemanager join``: run virtual nodes in a Kubernetes cluster until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import (
    grpc_engine,
    join_options,
    live,
    server_options,
    settings_options,
)
from devicemanager.cli.files import add_directory
from devicemanager.cli.fleet import load_fleet
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.apiserver import FakeApiServer
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.cli.live import Display
    from devicemanager.cli.options import Subparsers
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.cluster.node_specs import NodeSpecs
    from devicemanager.fleet import Fleet
    from devicemanager.observe.view import ClusterView

_LEAVING = {
    "delete": "deleting the nodes",
    "keep": "keeping the nodes",
    "shutdown": "shutting the nodes down",
}
_REPORT = 10.0
"""Seconds between progress lines without ``--demo``."""
_DEMO_REPORT = 1.0
"""Seconds between progress lines with ``--demo``."""

# What --demo creates.
_DEMO_RESOURCE = "vendor.com/gpu"
_DEMO_DEVICES = f"{_DEMO_RESOURCE}=8"
_DEMO_NODES = 10
_DEMO_JOB_DURATION = "2s±1"
_DEMO_PODS = 40
_DEMO_PARALLEL_PODS = 20


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager join`` and its options."""
    parser = command(
        subparsers,
        "join",
        _run,
        "add virtual nodes to a Kubernetes cluster",
        description="Add virtual nodes with devices to a Kubernetes cluster. The cluster's "
        "scheduler binds pods; each node admits or rejects them as a kubelet does. Containers do "
        "not run. On SIGTERM or Ctrl-C the nodes leave (--leave). Shows the nodes live on a "
        "terminal, otherwise prints lines.",
    )
    join_options.add_cluster(parser)
    join_options.add_nodes(parser)
    join_options.add_containers(parser)
    join_options.add_sharing(parser)
    join_options.add_http(parser)
    server_options.add_control(parser)
    add_directory(
        parser,
        "--root",
        "directory for full nodes and the socket of the control API (default: a temporary "
        "one under /tmp, removed at exit)",
    )
    parser.usage = "%(prog)s [options]"
    add_format(parser, "text", "json")
    live.add_live(parser)
    settings_options.add_settings(parser, "topology", "version", "admission")


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals

    with StopSignals() as signals, contextlib.ExitStack() as stack:
        failures: list[OSError] = []
        display = live.display_until(args, signals, failures, stack)
        try:
            # Started before the flags are read, because --demo sets some of them.
            server = stack.enter_context(_demo(args, display.log))
            with contextlib.suppress(Stopped):
                _join(args, display, signals, stack, server)
        finally:
            display.close()
        if signals.came:
            display.log.say("leaving", f"leaving: {leaving(args)}")
    if failures:
        raise failures[0]
    return 0


def leaving(args: argparse.Namespace) -> str:
    """Return a text that says what the command does with the nodes when it exits, such as
    ``deleting the nodes``."""
    # Adopted Nodes belong to another program, so they are not deleted.
    is_kept = args.adopt is not None and args.leave == "delete"
    return _LEAVING["keep" if is_kept else args.leave]


def _join(
    args: argparse.Namespace,
    display: Display,
    signals: StopSignals,
    stack: contextlib.ExitStack,
    demo_server: FakeApiServer | None,
) -> None:
    from devicemanager.cluster.cluster import Cluster

    log = display.log
    # In-memory nodes do not use gRPC, so without full nodes it is not imported.
    if args.full:
        grpc_engine.use_calling_threads()
    fleet = None if args.fleet is None else load_fleet(args.fleet)
    kinds = join_options.node_kinds(args, fleet)
    count = sum(len(each.names) for each in kinds)
    join_options.check_sharing(args)
    join_options.check_http(args)
    # All flags are checked before the first request to the cluster.
    server_options.check_control(args)
    # Interruptible, because an exec plugin of the kubeconfig can take minutes.
    with signals.interruptible():
        cluster = Cluster.connect(
            args.kubeconfig,
            context=args.context,
            as_nodes=args.as_nodes,
            lease_duration=args.lease_duration,
            warn=lambda text: log.warn("cluster", text),
        )
    # Registered first, so that it runs last: the servers below stop before the nodes leave.
    stack.callback(cluster.close, args.leave)
    if (server := join_options.http_server(args, cluster)) is not None:
        stack.enter_context(server)
        log.say("http", f"HTTP of the nodes: {server.address}", address=server.address)
    if args.control is not None:
        control = server_options.nodes_control_server(args, cluster, _directory(args, stack))
        stack.enter_context(control)
        server_options.report_control(control, log)
    display.show(lambda: _view(cluster))
    # A monotonic clock, because the system time can be set during the wait.
    began = time.monotonic()
    with signals.interruptible(), display.waiting(f"for {counted(count, 'node')} to join"):
        _start(args, cluster, kinds, log)
    seconds = time.monotonic() - began
    # With --shard this is less than the requested number; other processes run the other nodes.
    joined = len(cluster.nodes)
    if args.shards is None:
        text = f"{counted(joined, 'node')} joined in {seconds:.1f} s"
        log.say("joined", text, nodes=joined, seconds=seconds)
    else:
        text = f"acquiring shards of {counted(count, 'node')}; the nodes of each shard then join"
        log.say("sharing", text, shards=args.shards)
    if fleet is not None:
        _create_pods(args, fleet, log, signals)
    elif demo_server is not None:
        _submit_job(demo_server, log)
    log.say("ready", "ready; press Ctrl-C to leave")
    _follow(cluster, log, signals, _REPORT if demo_server is None else _DEMO_REPORT)


def _create_pods(
    args: argparse.Namespace, fleet: Fleet, log: KubeletLog, signals: StopSignals
) -> None:
    from devicemanager.client.api import ApiClient
    from devicemanager.client.credentials import load
    from devicemanager.fleet.joining import create_objects

    api = ApiClient(load(args.kubeconfig, args.context))
    try:
        with signals.interruptible():
            count = create_objects(api, fleet, lambda text: log.warn("fleet", text))
    finally:
        api.close()
    log.say("fleet", f"created {counted(count, 'pod')} of the fleet", pods=count)


def _directory(args: argparse.Namespace, stack: contextlib.ExitStack) -> Path:
    """Return the directory for the socket of the control API, which is --root or a temporary
    one."""
    if args.root is None:
        from devicemanager.kubelet.directories import TemporaryRoot

        made = TemporaryRoot(stack)
        stack.callback(made.remove)
        return made.path
    root = Path(args.root).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot create --root {args.root}: {error.strerror}") from None
    return root


def _view(cluster: Cluster) -> Callable[[], ClusterView]:
    from devicemanager.observe.view import ClusterViewBuilder

    return ClusterViewBuilder(cluster.url, lambda: cluster.nodes).refresh


def _start(
    args: argparse.Namespace, cluster: Cluster, kinds: Sequence[NodeSpecs], log: KubeletLog
) -> None:
    # The kinds have different permissions only if they have DRA drivers.
    options = max((each.options for each in kinds), key=lambda each: bool(each.drivers))
    result = cluster.check(
        [name for each in kinds for name in each.names],
        shards=args.shards is not None,
        namespace=args.namespace,
        take_over=args.take_over,
        options=options,
    )
    log.say("cluster", f"cluster: {cluster.url}, {result.version}", url=cluster.url)
    if result.cloud:
        log.warn(
            "cloud",
            f"a cloud controller may delete the nodes because no machine exists for them: "
            f"{result.cloud}",
        )
    if result.existing:
        log.say("taken-over", f"taking over {counted(len(result.existing), 'existing node')}")
    if args.shards is None:
        for each in kinds:
            cluster.join_specs(each, args.shard)
        if args.adopt is not None:
            join_options.adopt(args, cluster)
        return
    cluster.join_shards(kinds, args.shards, args.namespace, join_options.identity())


def _follow(cluster: Cluster, log: KubeletLog, signals: StopSignals, every: float) -> None:
    """Print the numbers of nodes and pods when they change, until a signal arrives."""
    last = ""
    while True:
        text, fields = _report(cluster)
        # An idle cluster can stay unchanged for hours, so an equal line is not repeated.
        if text != last:
            log.say("nodes", text, **fields)
            last = text
        with signals.interruptible():
            time.sleep(every)


def _report(cluster: Cluster) -> tuple[str, dict[str, int]]:
    count = cluster.pod_counts()
    pods = ", ".join(f"{number} {phase.lower()}" for phase, number in count.items() if number)
    fields = {"nodes": len(cluster.nodes), **{k.lower(): v for k, v in count.items()}}
    return f"{counted(len(cluster.nodes), 'node')}; pods: {pods or 'none'}", fields


# -- demo --------------------------------------------------------------------------------


@contextlib.contextmanager
def _demo(args: argparse.Namespace, log: KubeletLog) -> Iterator[FakeApiServer | None]:
    """Yield a running fake API server, after setting the flags that --demo implies. Without --demo,
    yield None."""
    if not args.demo:
        yield None
        return
    # Imported here because only --demo needs them.
    from devicemanager.apiserver import Controllers, FakeApiServer

    _set_flags(args)
    with (
        tempfile.TemporaryDirectory(prefix="devicemanager-demo-") as directory,
        FakeApiServer() as server,
        Controllers(server),
    ):
        args.kubeconfig = str(server.kubeconfig(Path(directory) / "kubeconfig"))
        log.say("demo", f"demo: fake API server at {server.url}", url=server.url)
        yield server


def _set_flags(args: argparse.Namespace) -> None:
    for name in ("kubeconfig", "context"):
        if getattr(args, name) is not None:
            raise CommandError(f"--demo has its own cluster: remove --{name}")
    if args.fleet is not None:
        return
    if not args.simulate:
        args.simulate = [settings_options.device_option(_DEMO_DEVICES)]
    # Also replaces an explicit --nodes 1, which cannot be told apart from the default.
    if args.nodes == 1:
        args.nodes = _DEMO_NODES
    if args.job_duration is None:
        args.job_duration = join_options.duration(_DEMO_JOB_DURATION)


def _submit_job(server: FakeApiServer, log: KubeletLog) -> None:
    """Create a Job whose pods request one GPU each."""
    container = {
        "name": "train",
        "image": "example.com/train",
        "resources": {"limits": {_DEMO_RESOURCE: "1"}},
    }
    template = {
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
        }
    }
    spec = {"completions": _DEMO_PODS, "parallelism": _DEMO_PARALLEL_PODS, "template": template}
    server.create("jobs", {"metadata": {"name": "train"}, "spec": spec})
    log.say("demo", f"demo: created a Job of {_DEMO_PODS} pods with one GPU each")
