"""``Cluster``: the virtual nodes of one process in a Kubernetes cluster."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Self

import attrs

from devicemanager.client.api import ApiClient, ScopedApi
from devicemanager.client.credentials import Credentials, load
from devicemanager.client.errors import ClientClosing, ClusterError
from devicemanager.client.lease_controller import LeaseLag
from devicemanager.client.protocol import Api, JsonObject
from devicemanager.client.rate_limited_warning import Warn
from devicemanager.client.watches import check_descriptors
from devicemanager.client.work_queue import Priority
from devicemanager.cluster import preflight
from devicemanager.cluster.addresses import PodAddresses, UsedAddresses
from devicemanager.cluster.adoption import Adoption, native_capacity
from devicemanager.cluster.connection import Connection
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.driver_layouts import DriverLayout, kwok_drivers
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.node_context import ServerFeatures
from devicemanager.cluster.node_specs import NodeSpecs
from devicemanager.cluster.nodes.node import ClusterNode, Leave
from devicemanager.cluster.options import VIRTUAL_LABEL, AsNodes, NodeOptions
from devicemanager.cluster.shard import Shard, ShardRunner
from devicemanager.core.errors import RequestError
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated
from devicemanager.kubelet.settings import Settings

__all__ = ["Cluster"]

_LABEL = (VIRTUAL_LABEL, "true")
_LEAVE_TIMEOUT = 60.0


class Cluster:
    """A Kubernetes cluster, with the virtual nodes that this process runs in it.

    ``connect`` creates a ``Cluster``. Use it as a context manager, or call ``close``. Thread-safe.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        as_nodes: AsNodes = False,
        lease_duration: int = 40,
        leave: Leave = "delete",
        warn: Warn = lambda text: None,
        clock: Clock | None = None,
    ) -> None:
        """Internal: use ``connect``."""
        self._credentials = credentials
        self._as_nodes = as_nodes
        self._leave: Leave = leave
        self._warn = warn
        self._clock = clock or SystemClock()
        self._connection = Connection(
            credentials,
            node_selector="=".join(_LABEL),
            lease_duration=lease_duration,
            as_nodes=as_nodes,
            warn=warn,
        )
        self._features = ServerFeatures()
        self._used_addresses = UsedAddresses()
        # Guards the fields below.
        self._lock = threading.Lock()
        self._nodes: dict[str, ClusterNode] = {}
        # By node, not by name: a shard that is acquired again has new nodes with the same names.
        self._ends: dict[ClusterNode, Callable[[], None]] = {}
        self._shard_runners: list[ShardRunner] = []
        self._kinds: dict[str, tuple[NodeSpecs, Shard | None]] = {}
        self._adoption: Adoption | None = None
        # One kind is scaled at a time, so that two calls cannot join a node twice.
        self._scaling = threading.Lock()

    @classmethod
    def connect(
        cls,
        kubeconfig: str | os.PathLike[str] | None = None,
        *,
        context: str | None = None,
        as_nodes: AsNodes = False,
        lease_duration: int = 40,
        leave: Leave = "delete",
        warn: Warn = lambda text: None,
        clock: Clock | None = None,
    ) -> Self:
        """Read the credentials of a cluster and return a ``Cluster``; no request is sent yet.

        Without ``kubeconfig``, use the first that exists: the environment variable
        ``KUBECONFIG``, ``~/.kube/config`` or the pod's service account. With ``as_nodes``, writes
        impersonate ``system:node:NAME``; with ``as_nodes="strict"``, LIST and WATCH do so, too.
        ``lease_duration`` is in seconds. ``leave`` is what happens to the Node objects when nodes
        leave: ``delete``, ``keep`` or ``shutdown``. ``warn`` is called with one-line warnings for
        the user. Raises ClusterError for missing or invalid credentials.
        """
        return cls(
            load(kubeconfig, context),
            as_nodes=as_nodes,
            lease_duration=lease_duration,
            leave=leave,
            warn=warn,
            clock=clock,
        )

    @property
    def url(self) -> str:
        """URL of the API server."""
        return self._credentials.server.url

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """The nodes that have joined and not left, by name."""
        with self._lock:
            nodes = list(self._nodes.values())
        return MappingProxyType({node.name: node for node in nodes if not node.is_over})

    @property
    def lease_lag(self) -> LeaseLag:
        """Statistics on how late the Leases of the nodes were renewed."""
        return self._connection.leases.lag

    @property
    def pending_requests(self) -> int:
        """Number of requests that wait or are in flight. Requests for leases and watches are not
        counted."""
        return self._connection.work_queue.pending

    def pod_counts(self) -> dict[str, int]:
        """Return the numbers of pods on all nodes together, by phase."""
        found: Counter[str] = Counter()
        for node in self.nodes.values():
            found.update(str(record.phase) for record in node.kubelet.pod_store.records())
        return dict(sorted(found.items()))

    # -- joining ---------------------------------------------------------------------

    def check(
        self,
        names: Collection[str],
        *,
        shards: bool = False,
        namespace: str = "default",
        take_over: bool = False,
        options: NodeOptions | None = None,
    ) -> preflight.PreflightResult:
        """Check whether nodes with these names can join; change nothing.

        ``shards`` is True if several processes share the nodes (``join_shards``). If so, the
        permissions for the Leases of the shards in ``namespace`` are checked, too. With
        ``take_over`` or ``shards``, the names can be those of nodes that another process runs.
        Nodes with DRA drivers in their ``options`` require more permissions. Raises ClusterError
        if the nodes cannot join.
        """
        if self._as_nodes == "strict":
            check_descriptors(len(names))
        required = list(preflight.required_permissions(as_nodes=self._as_nodes))
        if options is not None and options.drivers:
            required += preflight.dra_permissions(
                device_status=options.device_status, as_nodes=self._as_nodes
            )
        if shards:
            required += preflight.lease_permissions(namespace)
        api = ApiClient(self._credentials, connections=1)
        try:
            return preflight.check(
                api,
                names,
                _LABEL,
                required,
                take_over=take_over or shards,
                as_nodes=bool(self._as_nodes),
            )
        finally:
            api.close()

    def join(
        self,
        kubelet: NodeKubelet,
        name: str,
        *,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
    ) -> ClusterNode:
        """Add a node with an existing kubelet, such as a ``MockKubelet``. Wait until it joins, and
        return it.

        Raises ClusterError if the node cannot join.
        """
        self.check([name], options=options)
        return self.join_specs(NodeSpecs.single(name, kubelet, options, behaviour))[0]

    def join_in_memory(
        self,
        prefix: str,
        count: int = 1,
        simulate: Simulated | None = None,
        *,
        settings: Settings | None = None,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
        shard: Shard | None = None,
    ) -> list[ClusterNode]:
        """Add the in-memory nodes ``PREFIX-0``, ``PREFIX-1`` and so on, with simulated devices.

        With ``shard``, add only the nodes of this shard. Raises ClusterError if a node cannot
        join.
        """
        specs = NodeSpecs.numbered(
            prefix, count, simulate, settings=settings, options=options, behaviour=behaviour
        )
        self.check(specs.names, options=specs.options)
        return self.join_specs(specs, shard)

    def join_specs(self, specs: NodeSpecs, shard: Shard | None = None) -> list[ClusterNode]:
        """Add the nodes of ``specs``. Call ``check`` first.

        With ``shard``, add only the nodes of this shard. Raises ClusterError if any node cannot
        join; the nodes that can join stay in the cluster.
        """
        if specs.kind:
            with self._lock:
                self._kinds[specs.kind] = specs, shard
        return self._join_indexes(specs, _indexes(specs, shard), shard)

    def _join_indexes(
        self, specs: NodeSpecs, indexes: Iterable[int], shard: Shard | None
    ) -> list[ClusterNode]:
        number = 0 if shard is None else shard.number
        nodes = self._create(specs, indexes, number, self._connection.api)
        errors = self._join_all(nodes)
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            name, error = errors[0]
            why = "the cluster is closed" if isinstance(error, ClientClosing) else error
            raise ClusterError(f"node {name}: {why}{more}")
        return nodes

    def scale(self, kind: str, count: int) -> None:
        """Set the number of nodes of a kind to ``count``. Wait until the nodes have joined or left.

        A kind is a group of nodes with the same devices and options. First the nodes whose index is
        ``count`` or higher leave. Then each node with a lower index joins if it is not in the
        cluster, even if it left earlier for another reason.

        Raises RequestError for an unknown kind or an invalid number, and if nodes cannot join.
        """
        with self._scaling:
            with self._lock:
                found = self._kinds.get(kind)
                kinds = ", ".join(sorted(self._kinds)) or "none"
            if found is None:
                raise RequestError(f"unknown kind {kind[:200]!r}: kinds of this process: {kinds}")
            try:
                self._scale(*found, count)
            except ClusterError as error:
                raise RequestError(str(error)) from error

    def _scale(self, specs: NodeSpecs, shard: Shard | None, count: int) -> None:
        wanted = specs.resized(count)
        with self._lock:
            self._kinds[specs.kind] = wanted, shard
        self.leave(specs.names[count:])
        joined = self.nodes
        missing = [each for each in _indexes(wanted, shard) if wanted.names[each] not in joined]
        if missing:
            names = [wanted.names[each] for each in missing]
            self.check(names, options=wanted.options)
            self._join_indexes(wanted, missing, shard)

    def _create(
        self, specs: NodeSpecs, indexes: Iterable[int], shard: int, api: Api
    ) -> list[ClusterNode]:
        """Create nodes that have not joined yet. If one cannot be created, discard all and raise
        the error."""
        nodes: list[ClusterNode] = []
        try:
            for index in indexes:
                nodes.append(self._create_one(specs, index, shard, api))
        # Also after Ctrl-C, because a ``MockKubelet`` has threads and sockets that must end.
        except BaseException:
            self._discard(*nodes)
            raise
        return nodes

    def _create_one(self, specs: NodeSpecs, index: int, shard: int, api: Api) -> ClusterNode:
        kubelet = specs.make(index)
        node = ClusterNode(
            specs.names[index],
            kubelet,
            options=specs.options_of(index, as_nodes=bool(self._as_nodes), shard=shard),
            behaviour=specs.behaviour,
            api=api,
            work_queue=self._connection.work_queue,
            leases=self._connection.leases,
            clock=self._clock,
            features=self._features,
            addresses=PodAddresses(
                self._used_addresses, specs.options.pod_cidr, specs.number(index), specs.total
            ),
            warn=self._warn,
            on_left=lambda name: self._on_left(node),
        )
        with self._lock:
            self._ends[node] = partial(specs.end, kubelet)
        return node

    def _join_all(self, nodes: Collection[ClusterNode]) -> list[tuple[str, Exception]]:
        """Let nodes join in parallel; return name and error of each node that cannot join."""
        connection = self._connection
        errors: list[tuple[str, Exception]] = []

        def join(node: ClusterNode) -> None:
            try:
                self._join_one(node)
            except Exception as error:
                failed(node, error)
                if not isinstance(error, ClusterError):
                    raise  # a bug: the work queue reports it

        def failed(node: ClusterNode, error: Exception) -> None:
            errors.append((node.name, error))
            connection.watches.drop(node.name)
            # ``leave`` and ``close`` handle a node that failed after it had joined.
            with self._lock:
                has_joined = self._nodes.get(node.name) is node
            if not has_joined:
                self._discard(node)

        try:
            # Called before the nodes join, so that pods that are bound immediately are not missed.
            connection.watches.expect([node.name for node in nodes])
            self._for_each(
                nodes, Priority.NODE_STATUS, join, lambda node: failed(node, ClientClosing())
            )
        except RuntimeError:  # no thread can be started
            for node in nodes:
                connection.watches.drop(node.name)
            self._discard(*nodes)
            raise
        return errors

    def _join_one(self, node: ClusterNode) -> None:
        node.join()
        with self._lock:
            self._nodes[node.name] = node
        self._connection.watches.add_handlers(node.name, node, node)
        # If a status update fails during the join, the node leaves by itself. This can happen
        # before the node is in ``_nodes``, so ``_on_left`` is called again.
        if node.is_over:
            self._on_left(node)
            # The warning has the reason, such as a missing permission.
            raise ClusterError("the node left immediately after joining: see the warning before")

    # -- shards ----------------------------------------------------------------------

    def join_shards(
        self,
        specs: NodeSpecs | Sequence[NodeSpecs],
        shards: int,
        namespace: str,
        identity: str,
    ) -> None:
        """Start to acquire shards and run their nodes; return immediately.

        The nodes are divided into ``shards`` shards. Each shard has a Lease in ``namespace``. When
        this process acquires a shard, the nodes of the shard join. When the process loses the
        shard, it stops running these nodes. ``identity`` must be unique among the processes.
        """
        kinds = (specs,) if isinstance(specs, NodeSpecs) else tuple(specs)
        runner = ShardRunner(
            # The timeout must be well below ``GIVE_UP``, after which a process gives up a shard.
            ApiClient(self._credentials, connections=2, timeout=3.0),
            namespace,
            shards,
            identity,
            join=partial(self._join_shard, kinds),
            abandon=lambda shard: self.abandon(
                [each.names[index] for each in kinds for index in _indexes(each, shard)]
            ),
            warn=self._warn,
        )
        with self._lock:
            self._shard_runners.append(runner)
        runner.start()

    def _join_shard(
        self, kinds: Iterable[NodeSpecs], shard: Shard, is_over: Callable[[], bool]
    ) -> None:
        api = ScopedApi(self._connection.api, is_over)
        nodes = [
            node
            for specs in kinds
            for node in self._create(specs, _indexes(specs, shard), shard.number, api)
        ]
        for name, error in self._join_all(nodes)[:1]:
            if not isinstance(error, ClientClosing):
                self._warn(f"shard {shard.number}: node {name}: {error}")
        if is_over():
            self.abandon([node.name for node in nodes])

    # -- adoption --------------------------------------------------------------------

    def adopt(
        self,
        selector: str,
        simulate: Simulated | None = None,
        *,
        settings: Settings | None = None,
        options: NodeOptions | None = None,
        behaviour: ContainerBehaviour | None = None,
    ) -> None:
        """Run a node for each Node that matches ``selector``, now and later; return immediately.

        ``selector`` is a label selector, such as ``karpenter.sh/nodepool=gpu``. Another program
        creates and deletes the Nodes: ``close`` keeps them. A Node keeps its capacity of native
        resources. For resources that it lacks, ``options.amounts`` is used.
        KWOK's annotations of a Node, such as ``kwok.x-k8s.io/dra-gpu``, add simulated DRA drivers.
        """
        numbers = count()

        def adopt(node: JsonObject) -> None:
            name = node["metadata"]["name"]
            try:
                own = kwok_drivers(node["metadata"].get("annotations") or {})
                specs = NodeSpecs.adopted(
                    name,
                    next(numbers),
                    {**(options.amounts if options else {}), **native_capacity(node)},
                    simulate,
                    settings=settings,
                    options=_with_drivers(options or NodeOptions(), own),
                    behaviour=behaviour,
                )
                # The node of an earlier Node with this name has left, or is leaving.
                self.abandon([name])
                self.join_specs(specs)
            except ClusterError as error:
                self._warn(f"node {name} is not adopted: {error}")

        self._adoption = Adoption(self._connection.api, selector, adopt, self._warn)
        self._adoption.start()

    # -- leaving ---------------------------------------------------------------------

    def abandon(self, names: Iterable[str]) -> None:
        """Stop running the nodes with these names; do not change their objects on the API
        server."""
        self._leave_all([self._forget(name) for name in names], "keep")

    def leave(self, names: Iterable[str] | None = None, how: Leave | None = None) -> None:
        """Let the nodes with these names leave the cluster; without ``names``, all nodes.

        ``how`` is what happens to the Node objects: ``delete``, ``keep`` or ``shutdown``. None
        means the value that was passed to ``connect``.
        """
        with self._lock:
            chosen = list(self._nodes) if names is None else list(names)
        self._leave_all([self._forget(name) for name in chosen], how or self._leave)

    def _on_left(self, node: ClusterNode) -> None:
        """Remove a node that has left without a call of ``leave``."""
        # A shard that is acquired again can already run a new node with this name.
        with self._lock:
            has_successor = self._nodes.get(node.name, node) is not node
        if not has_successor:
            self._forget(node.name)
        self._end(node)

    def _forget(self, name: str) -> ClusterNode | None:
        with self._lock:
            node = self._nodes.pop(name, None)
        self._connection.watches.drop(name)
        self._connection.leases.remove(name)
        return node

    def _leave_all(self, nodes: Iterable[ClusterNode | None], how: Leave) -> None:
        def leave(node: ClusterNode) -> None:
            try:
                # If the server is unreachable, the Node object stays and the node is abandoned.
                with suppress(ClusterError, ClientClosing):
                    node.leave(how)
            finally:
                self._end(node)

        known = [node for node in nodes if node is not None]
        self._for_each(known, Priority.DELETION, leave, self._discard, _LEAVE_TIMEOUT)

    def _discard(self, *nodes: ClusterNode) -> None:
        """Stop running nodes, without a request to the API server."""
        with ExitStack() as stack:  # stops all nodes, even if one raises an error
            for node in nodes:
                stack.callback(self._end, node)
                stack.callback(node.leave, "keep")

    def _for_each(
        self,
        nodes: Collection[ClusterNode],
        priority: Priority,
        act: Callable[[ClusterNode], None],
        on_dropped: Callable[[ClusterNode], None],
        seconds: float | None = None,
    ) -> None:
        """Call ``act`` for nodes in parallel, and wait until all calls have returned.

        ``seconds`` limits the wait. ``on_dropped`` is called for each node whose work the work
        queue drops.
        """
        done = threading.Semaphore(0)

        def work(do: Callable[[ClusterNode], None], node: ClusterNode) -> None:
            try:
                do(node)
            finally:
                done.release()

        # The key is that of the node, so that joining, leaving and status updates keep their
        # order.
        for node in nodes:
            self._connection.work_queue.put(
                priority,
                f"node/{node.name}",
                partial(work, act, node),
                on_dropped=partial(work, on_dropped, node),
            )
        deadline = None if seconds is None else time.monotonic() + seconds
        for _ in nodes:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not done.acquire(timeout=remaining):
                return

    def _end(self, node: ClusterNode) -> None:
        """Dispose of the kubelet of a node, at the first call for this node."""
        with self._lock:
            end = self._ends.pop(node, None)
        if end is not None:
            end()

    def close(self, leave: Leave | None = None) -> None:
        """Let all nodes leave the cluster, and close the connection to it.

        ``leave`` is what happens to the Node objects: ``delete``, ``keep`` or ``shutdown``. None
        means the value that was passed to ``connect``.
        """
        with self._lock:
            runners, self._shard_runners = self._shard_runners, []
        how = leave or self._leave
        if how != "keep":
            # Nodes leave before the shards are released, because otherwise another process would
            # take over the nodes.
            self.leave(how=how)
        for runner in runners:
            runner.stop()
        # For the nodes of shards that were acquired during the first call; with ``keep``, for all
        # nodes.
        self.leave(how=how)
        self._connection.close()
        self.abandon(self.nodes)  # nodes that joined on another thread during the lines above

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _indexes(specs: NodeSpecs, shard: Shard | None) -> list[int]:
    """Return the indexes of the nodes in ``specs`` that belong to a shard; None means all nodes."""
    return [each for each in specs.indexes if shard is None or shard.has(specs.number(each))]


def _with_drivers(options: NodeOptions, own: Collection[DriverLayout]) -> NodeOptions:
    """Return a copy of the options to which the drivers ``own`` are added. A driver in ``own``
    replaces the driver of the options with the same name."""
    names = {each.driver for each in own}
    others = (each for each in options.drivers if each.driver not in names)
    return attrs.evolve(options, drivers=(*others, *own))
