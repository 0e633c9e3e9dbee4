"""How nodes hear of their Nodes and pods: one watch for all of them, or each by its own."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from devicemanager.cluster.client.api import ApiClient, node_path
from devicemanager.cluster.client.errors import ClusterError, NotFound
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import Warn
from devicemanager.cluster.client.shared_informer import Member, NodeFanout, PodFanout, Receiver
from devicemanager.cluster.client.streams import OpenStreams
from devicemanager.cluster.client.validation import defect, list_items
from devicemanager.cluster.client.watch import Reflector, pods_on

__all__ = ["OwnWatches", "SharedWatches", "Watches", "check_descriptors"]

_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_OTHERS = 128
"""Open files that a process has besides."""


class Watches(Protocol):
    """May be used from any thread."""

    def expect(self, names: Collection[str]) -> None:
        """These nodes are about to join: what comes for them is kept."""

    def joined(self, name: str, node: Member, pods: Receiver) -> None:
        """The node has joined: it is told everything from here on. Raises ApiError."""

    def drop(self, name: str) -> None:
        """This node is no more."""

    def close(self, seconds: float) -> None:
        """The client is closed: tell nobody anything any more. Waits so long for what is under
        way."""


class SharedWatches:
    """One watch of all pods and one of all our Nodes."""

    def __init__(self, api: ApiClient, node_selector: str, warn: Warn) -> None:
        """``node_selector``: the label that our Nodes have, as ``key=value``."""
        self._api = api
        self._pods = PodFanout()
        self._nodes = NodeFanout()
        self._reflectors = (
            Reflector(
                api,
                _PODS,
                self._pods,
                query={"fieldSelector": "spec.nodeName!="},
                wants=pods_on(self._pods.names),
                is_same=self._is_same,
                warn=warn,
            ),
            Reflector(
                api,
                _NODES,
                self._nodes,
                query={"labelSelector": node_selector},
                is_same=self._is_same,
                warn=warn,
            ),
        )
        # Guards the fields below.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        """Of the reflectors that run, which are the first ones."""
        self._late: set[str] = set()

    def expect(self, names: Collection[str]) -> None:
        """As in ``Watches``. The first starts the watches: what is about these nodes then comes
        with the first LIST, and about later ones with one of their own."""
        is_late = self._pods.has_listed
        for name in names:
            self._pods.expect(name)
        with self._lock:
            if is_late:
                self._late.update(names)
            for reflector in self._reflectors[len(self._threads) :]:
                self._threads.append(reflector.start())

    def _is_same(self) -> bool:
        """Whether one of our nodes is still there: an API server over a new etcd has none."""
        chosen = self._nodes.any()
        if chosen is None:
            return True
        name, uid = chosen
        return _is_there(self._api.attempt, name, uid)

    def joined(self, name: str, node: Member, pods: Receiver) -> None:
        """As in ``Watches``."""
        self._nodes.receive(name, node)
        self._pods.receive(name, pods)
        with self._lock:
            is_late = name in self._late
            self._late.discard(name)
        if is_late:
            query = {"fieldSelector": f"spec.nodeName={name}"}
            found = self._api.request("GET", _PODS, query=query)
            self._pods.complete(name, [each for each in list_items(found) if not defect(each)])

    def drop(self, name: str) -> None:
        """As in ``Watches``."""
        with self._lock:
            self._late.discard(name)
        self._nodes.drop(name)
        self._pods.drop(name)

    def close(self, seconds: float) -> None:
        """As in ``Watches``."""
        _join(self._threads, seconds)


class OwnWatches:
    """Two watches for each node, made in its name: the Node authorizer lets a node see its own
    pods and its own Node, and nothing else."""

    def __init__(self, api: ApiClient, warn: Warn) -> None:
        self._api = api
        self._warn = warn
        # Guards the fields below.
        self._lock = threading.Lock()
        self._sources: dict[str, _NodeSource] = {}
        self._ending: list[threading.Thread] = []

    def expect(self, names: Collection[str]) -> None:
        """As in ``Watches``: a node's first LIST has all of it."""

    def joined(self, name: str, node: Member, pods: Receiver) -> None:
        """As in ``Watches``."""
        source = _NodeSource(self._api, name)
        with self._lock:
            self._sources[name] = source
        nodes_told, pods_told = NodeFanout(), PodFanout()
        nodes_told.receive(name, node)
        pods_told.expect(name)
        pods_told.receive(name, pods)
        # With the UID of now: a node that registers again does so with a server that may be new.
        is_same = partial(_is_there, source.attempt, name, node.uid)
        for path, sink, field in (
            (_PODS, pods_told, "spec.nodeName"),
            (_NODES, nodes_told, "metadata.name"),
        ):
            query = {"fieldSelector": f"{field}={name}"}
            watch = Reflector(source, path, sink, query=query, is_same=is_same, warn=self._warn)
            source.threads.append(watch.start())

    def drop(self, name: str) -> None:
        """As in ``Watches``."""
        with self._lock:
            source = self._sources.pop(name, None)
            if source is None:
                return
            self._ending = [each for each in self._ending if each.is_alive()] + source.threads
        source.end()

    def close(self, seconds: float) -> None:
        """As in ``Watches``."""
        for name in list(self._sources):
            self.drop(name)
        _join(self._ending, seconds)


class _NodeSource:
    """What is asked in the name of one node, until ``end``."""

    def __init__(self, api: ApiClient, node: str) -> None:
        self._api = api
        self._node = node
        self._streams = OpenStreams()
        self._ended = threading.Event()
        self.threads: list[threading.Thread] = []
        """Of its watches."""

    @property
    def is_closing(self) -> bool:
        """As in ``watch.Source``."""
        return self._ended.is_set() or self._api.is_closing

    def wait(self, seconds: float) -> bool:
        """As in ``watch.Source``."""
        return self._ended.wait(seconds) or self._api.is_closing

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """As in ``watch.Source``."""
        return self._api.attempt(method, path, query=query, user=self._node)

    def stream(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """As in ``watch.Source``."""
        return self._api.stream(
            path, query, silence=silence, user=self._node, streams=self._streams
        )

    def end(self) -> None:
        """Ask nothing more, and end what is read."""
        self._ended.set()
        self._streams.close()


def check_descriptors(nodes: int) -> None:
    """Raises ClusterError if this process may not have the connections that the watches of so
    many nodes take when each has its own."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * nodes + _OTHERS
    if soft != resource.RLIM_INFINITY and needed > soft:
        raise ClusterError(
            f"{nodes} nodes that watch as themselves take {needed} open files, and {soft} are "
            "allowed: raise that (ulimit -n), or take fewer nodes"
        )


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))


def _is_there(attempt: Callable[[str, str], JsonObject], name: str, uid: str) -> bool:
    """Whether the Node is still the one that it was."""
    try:
        found = attempt("GET", node_path(name))
    except NotFound:
        return False
    return bool(found["metadata"]["uid"] == uid)
