"""Cluster: virtual nodes in one Kubernetes cluster, as many as one process runs."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from types import MappingProxyType
from typing import Self

from devicemanager.cluster import preflight
from devicemanager.cluster.client.api import ApiClient, Scoped
from devicemanager.cluster.client.credentials import Credentials, load
from devicemanager.cluster.client.errors import ClientClosing, ClusterError
from devicemanager.cluster.client.protocol import Api, Priority
from devicemanager.cluster.client.rate_limited_warning import Warn
from devicemanager.cluster.client.watches import check_descriptors
from devicemanager.cluster.connection import Connection
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.node_specs import Members, light_members
from devicemanager.cluster.nodecontext import Shared
from devicemanager.cluster.nodes.node import ClusterNode, Leave
from devicemanager.cluster.options import VIRTUAL_LABEL, AsNodes, NodeOptions
from devicemanager.cluster.shard import Shard, ShardClaims
from devicemanager.io.clock import Clock, SystemClock
from devicemanager.kubelet.inmemory.devices import Simulated
from devicemanager.kubelet.settings import Settings

__all__ = ["Cluster"]

_LABEL = (VIRTUAL_LABEL, "true")
_LEAVING = 60.0


class Cluster:
    """The nodes of this process in one cluster, from ``connect`` to ``close`` or the end of
    ``with``. May be used from any thread."""

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
        """As ``connect``, which reads the credentials."""
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
        self._shared = Shared()
        # Guards the fields below.
        self._lock = threading.Lock()
        self._nodes: dict[str, ClusterNode] = {}
        # By node, not by its name: a shard that is taken again has others of the same names.
        self._ends: dict[ClusterNode, Callable[[], None]] = {}
        self._claims: list[ShardClaims] = []

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
        """A cluster by its kubeconfig; see ``credentials.load`` for what None means.

        ``as_nodes`` writes as the user ``system:node:NAME``, and ``"strict"`` also lists and
        watches so; ``lease_duration`` is in seconds;
        ``leave`` says what becomes of the nodes at the end; ``warn`` takes lines for people.
        Nothing is asked of the API server yet. Raises ClusterError.
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
        """The API server's."""
        return self._credentials.server.url

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """Our nodes that have joined, by name, but those that have left."""
        with self._lock:
            nodes = list(self._nodes.values())
        return MappingProxyType({node.name: node for node in nodes if not node.is_over})

    @property
    def connection(self) -> Connection:
        """What our nodes share: for measures, and requests of one's own."""
        return self._connection

    def pod_counts(self) -> dict[str, int]:
        """How many pods of our nodes are in each phase."""
        found: Counter[str] = Counter()
        for node in self.nodes.values():
            found.update(str(record.phase) for record in node.kubelet.pod_store.records())
        return dict(sorted(found.items()))

    # -- joining ---------------------------------------------------------------------

    def check(
        self, names: Collection[str], *, shards: bool = False, namespace: str = "default"
    ) -> preflight.Findings:
        """Look whether nodes of these names can join. Raises ClusterError; changes nothing."""
        if self._as_nodes == "strict":
            check_descriptors(len(names))
        wanted = list(preflight.needs(as_nodes=self._as_nodes))
        if shards:
            wanted += preflight.shard_needs(namespace)
        api = ApiClient(self._credentials, connections=1)
        try:
            return preflight.check(api, names, _LABEL, wanted)
        finally:
            api.close()

    def join(
        self,
        kubelet: NodeKubelet,
        name: str,
        *,
        options: NodeOptions | None = None,
        facts: Facts | None = None,
    ) -> ClusterNode:
        """Make a kubelet a node, which may be a ``MockKubelet``. Raises ClusterError."""
        self.check([name])
        member = Members.single(name, kubelet, options or NodeOptions(), facts or Facts())
        return self.join_members(member)[0]

    def join_light(
        self,
        prefix: str,
        count: int = 1,
        simulate: Simulated | None = None,
        *,
        settings: Settings | None = None,
        options: NodeOptions | None = None,
        facts: Facts | None = None,
        shard: Shard | None = None,
    ) -> list[ClusterNode]:
        """Add light nodes ``PREFIX-0`` and so on with virtual devices; of these the ones of
        ``shard``. Raises ClusterError."""
        members = light_members(
            prefix, count, simulate or {}, settings, options or NodeOptions(), facts or Facts()
        )
        self.check(members.names)
        return self.join_members(members, shard)

    def join_members(self, members: Members, shard: Shard | None = None) -> list[ClusterNode]:
        """Add nodes that were looked at before; of these the ones of ``shard``. Raises
        ClusterError if one cannot join; the others have joined then."""
        chosen = [index for index in members.indexes if shard is None or shard.has(index)]
        number = 0 if shard is None else shard.number
        nodes = self._made(members, chosen, number, self._connection.api)
        errors = self._join_all(nodes)
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            name, error = errors[0]
            why = "the cluster is closed" if isinstance(error, ClientClosing) else error
            raise ClusterError(f"node {name}: {why}{more}")
        return nodes

    def _made(
        self, members: Members, indexes: Iterable[int], shard: int, api: Api
    ) -> list[ClusterNode]:
        """The nodes, which have not joined: all of them, or whatever is raised and none."""
        nodes: list[ClusterNode] = []
        try:
            for index in indexes:
                nodes.append(self._node(members, index, shard, api))
        except BaseException:
            self._give_up(*nodes)
            raise
        return nodes

    def _node(self, members: Members, index: int, shard: int, api: Api) -> ClusterNode:
        kubelet = members.make(index)
        node = ClusterNode(
            members.name(index),
            kubelet,
            options=members.options_of(index, as_nodes=bool(self._as_nodes), shard=shard),
            facts=members.facts,
            api=api,
            lane=self._connection.lane,
            heartbeat=self._connection.heartbeat,
            clock=self._clock,
            shared=self._shared,
            warn=self._warn,
            left=lambda name: self._has_left(node),
        )
        with self._lock:
            self._ends[node] = partial(members.end, kubelet)
        return node

    def _join_all(self, nodes: Iterable[ClusterNode]) -> list[tuple[str, Exception]]:
        """Let them join, many at once; returns which could not, and why."""
        nodes = list(nodes)
        connection = self._connection
        errors: list[tuple[str, Exception]] = []

        def join(node: ClusterNode) -> None:
            try:
                self._join_one(node)
            except Exception as error:
                failed(node, error)
                if not isinstance(error, ClusterError):
                    raise

        def failed(node: ClusterNode, error: Exception) -> None:
            errors.append((node.name, error))
            connection.watches.drop(node.name)
            with self._lock:
                has_joined = self._nodes.get(node.name) is node
            if not has_joined:  # nobody will have it leave
                self._give_up(node)

        try:
            connection.watches.expect([node.name for node in nodes])
            self._for_each(
                nodes, Priority.NODE_STATUS, join, lambda node: failed(node, ClientClosing())
            )
        except RuntimeError:  # there is no thread, and none can be started
            for node in nodes:
                connection.watches.drop(node.name)
            self._give_up(*nodes)
            raise
        return errors

    def _join_one(self, node: ClusterNode) -> None:
        node.join()
        with self._lock:
            self._nodes[node.name] = node
        self._connection.watches.joined(node.name, node, node.pods)
        if node.is_over:  # perhaps before there was anything to forget
            self._has_left(node)
            raise ClusterError("it has left already, as a warning says")

    # -- shards ----------------------------------------------------------------------

    def share(self, members: Members, shards: int, namespace: str, identity: str) -> ShardClaims:
        """Run the shards of the members that this process can claim, and give them up where it
        cannot keep them. Returns at once; nodes join as their shards are taken."""
        api = ApiClient(self._credentials, connections=2, timeout=3.0)
        tenures: dict[int, _Tenure] = {}

        def taken(number: int) -> None:
            self._warn(f"shard {number} of {shards} is ours: its nodes join")
            before, tenure = tenures.get(number), _Tenure(lambda: number not in claims.ours)
            arguments = (members, Shard(number, shards), tenure, before)
            thread = threading.Thread(target=self._join_shard, args=arguments, daemon=True)
            tenures[number] = tenure
            try:
                thread.start()
            except RuntimeError:
                # The next one waits until all of this one have joined: nobody would say so.
                tenures.pop(number)
                if before is not None:
                    tenures[number] = before
                raise

        def lost(number: int) -> None:
            # There is none yet as long as nobody takes the line that ``taken`` prints.
            if tenure := tenures.get(number):
                tenure.lost.set()
            names = [members.name(i) for i in members.indexes if i % shards == number]
            self.abandon(names)

        claims = ShardClaims(
            api, namespace, shards, identity, taken=taken, lost=lost, warn=self._warn
        )
        with self._lock:
            self._claims.append(claims)
        claims.start()
        return claims

    def _join_shard(
        self, members: Members, shard: Shard, tenure: _Tenure, before: _Tenure | None
    ) -> None:
        if before is not None:
            # Its nodes have the same names, and some may be about to join still.
            before.joined.wait()
        try:
            self._join_until_over(members, shard, tenure.is_over)
        except Exception as error:  # such as of a kubelet that cannot start
            self._warn(f"shard {shard.number}: {error}")
        finally:
            tenure.joined.set()

    def _join_until_over(self, members: Members, shard: Shard, is_over: Callable[[], bool]) -> None:
        indexes = [index for index in members.indexes if shard.has(index)]
        api = Scoped(self._connection.api, is_over)
        nodes = self._made(members, indexes, shard.number, api)
        for name, error in self._join_all(nodes)[:1]:
            if not isinstance(error, ClientClosing):
                self._warn(f"shard {shard.number}: node {name}: {error}")
        if is_over():
            self.abandon([node.name for node in nodes])

    # -- leaving ---------------------------------------------------------------------

    def abandon(self, names: Iterable[str]) -> None:
        """Have nothing to do with these nodes any more; in the cluster they stay as they are."""
        self._part([self._forget(name) for name in names], "keep")

    def leave(self, names: Iterable[str] | None = None, how: Leave | None = None) -> None:
        """Nodes leave, all of ours unless some are named."""
        with self._lock:
            chosen = list(self._nodes) if names is None else list(names)
        nodes = [node for name in chosen if (node := self._forget(name)) is not None]
        self._part(nodes, how or self._leave)

    def _has_left(self, node: ClusterNode) -> None:
        """By itself: somebody deleted its Node, or we may not write it."""
        with self._lock:
            has_successor = self._nodes.get(node.name, node) is not node
        if not has_successor:
            self._forget(node.name)
        self._end(node)

    def _forget(self, name: str) -> ClusterNode | None:
        with self._lock:
            node = self._nodes.pop(name, None)
        self._connection.watches.drop(name)
        self._connection.heartbeat.remove(name)
        return node

    def _part(self, nodes: Iterable[ClusterNode | None], how: Leave) -> None:
        def part(node: ClusterNode) -> None:
            try:
                with suppress(ClusterError, ClientClosing):
                    node.leave(how)
            finally:
                self._end(node)

        there = [node for node in nodes if node is not None]
        self._for_each(there, Priority.DELETION, part, self._give_up, _LEAVING)

    def _give_up(self, *nodes: ClusterNode) -> None:
        """Have nothing to do with nodes any more, without a request."""
        with ExitStack() as stack:
            for node in nodes:
                stack.callback(self._end, node)
                stack.callback(node.leave, "keep")

    def _for_each(
        self,
        nodes: Collection[ClusterNode],
        priority: Priority,
        act: Callable[[ClusterNode], None],
        dropped: Callable[[ClusterNode], None],
        seconds: float | None = None,
    ) -> None:
        """Do something with nodes, many at once, and wait until that is done, or so long.
        ``dropped`` is done with those for which it never will be."""
        open_ = _Countdown(len(nodes))

        def work(do: Callable[[ClusterNode], None], node: ClusterNode) -> None:
            try:
                do(node)
            finally:
                open_.one()

        for node in nodes:
            self._connection.lane.put(
                priority,
                f"node/{node.name}",
                partial(work, act, node),
                dropped=partial(work, dropped, node),
            )
        open_.wait(seconds)

    def _end(self, node: ClusterNode) -> None:
        with self._lock:
            end = self._ends.pop(node, None)
        if end is not None:
            end()

    def close(self, leave: Leave | None = None) -> None:
        """All our nodes leave, and nothing more is asked of the API server."""
        with self._lock:
            claims, self._claims = self._claims, []
        how = leave or self._leave
        if how != "keep":
            self.leave(how=how)
        for each in claims:
            each.stop()
        self.leave(how=how)
        self._connection.close()
        self.abandon(self.nodes)  # what another thread had join meanwhile

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Tenure:
    """A shard from when it is taken until it is lost."""

    def __init__(self, is_others: Callable[[], bool]) -> None:
        """``is_others`` says so before ``lost`` is set, and not any more if it is taken again."""
        self._is_others = is_others
        self.lost = threading.Event()
        self.joined = threading.Event()
        """Set once no more of its nodes join; those of one that is over are gone then."""

    def is_over(self) -> bool:
        """Whether nothing may be written for it."""
        return self.lost.is_set() or self._is_others()


class _Countdown:
    """Waits for so many things."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._left = count

    def one(self) -> None:
        """One of them is done."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Until all are done, or for so many seconds; returns whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._left <= 0, seconds)
