"""The watches of a process: two that all nodes share, or two for each node."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Collection
from functools import partial

from devicemanager.client.api import ApiClient, OpenStreams, node_path
from devicemanager.client.errors import ClusterError, NotFound
from devicemanager.client.protocol import JsonObject
from devicemanager.client.rate_limited_warning import Warn
from devicemanager.client.reflector import Reflector, pods_on
from devicemanager.client.shared_informer import (
    NodeHandler,
    NodeInformer,
    PodHandler,
    PodInformer,
)
from devicemanager.client.validation import defect, list_items
from devicemanager.client.work_queue import join_threads
from devicemanager.core.printable import counted

__all__ = ["PerNodeWatches", "SharedWatches", "check_descriptors"]

_PODS = "/api/v1/pods"
_NODES = "/api/v1/nodes"
_OTHER_FILES = 128
"""Number of open files that a process needs in addition to its watches."""


class SharedWatches:
    """Watches that all nodes share: one of all bound pods, one of all Nodes with devicemanager's
    label.

    Thread-safe.
    """

    def __init__(self, api: ApiClient, node_selector: str, warn: Warn) -> None:
        """Create the watches; ``expect`` starts them.

        ``node_selector``: label of devicemanager's Nodes, as ``key=value``.
        """
        self._api = api
        self._pods = PodInformer()
        self._nodes = NodeInformer()
        # One for each watch, because the watches fail and relist at different times.
        self._witnesses = tuple(_Witness(api, self._nodes) for _ in range(2))
        self._reflectors = (
            Reflector(
                api,
                _PODS,
                self._pods,
                # Only bound pods, because pending pods belong to no node and can be thousands.
                query={"fieldSelector": "spec.nodeName!="},
                wants=pods_on(self._pods.names),
                is_same=self._witnesses[0].exists,
                warn=warn,
            ),
            Reflector(
                api,
                _NODES,
                self._nodes,
                query={"labelSelector": node_selector},
                is_same=self._witnesses[1].exists,
                warn=warn,
            ),
        )
        # Guards the fields below.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        """Threads of the started reflectors, in the order of ``_reflectors``. The list is shorter
        than ``_reflectors`` until all threads have started."""
        self._late: set[str] = set()

    def expect(self, names: Collection[str]) -> None:
        """Start to collect the pods of nodes that are going to join.

        The first call starts the watches, which begin with a LIST of all pods. If this method is
        called for a node before that LIST ends, the LIST provides the node's pods. For each later
        node, ``add_handlers`` sends a LIST of the node's pods.
        """
        for name in names:
            self._pods.expect(name)
            self._nodes.expect(name)
        with self._lock:
            # Read after ``expect``. If the first LIST ends between the two calls, it may include
            # the nodes, and another LIST does no harm. In the other order, nodes could get no LIST.
            if self._pods.has_listed:
                self._late.update(names)
            # This also starts the reflectors for which an earlier call could start no thread.
            for reflector in self._reflectors[len(self._threads) :]:
                self._threads.append(reflector.start())

    def add_handlers(self, name: str, node: NodeHandler, pods: PodHandler) -> None:
        """Start to deliver objects of the node ``name``: its Node object to the handler ``node``,
        and its pods to the handler ``pods``.

        Call it when the node has joined. Raises ApiError if a LIST of the node's pods fails.
        """
        self._nodes.add_handler(name, node)
        for witness in self._witnesses:
            witness.offer(name, node.uid)
        self._pods.add_handler(name, pods)
        with self._lock:
            is_late = name in self._late
            self._late.discard(name)
        if is_late:
            query = {"fieldSelector": f"spec.nodeName={name}"}
            # One page is enough, because a node has at most a few hundred pods.
            found = self._api.request("GET", _PODS, query=query)
            self._pods.complete(name, [each for each in list_items(found) if not defect(each)])

    def drop(self, name: str) -> None:
        """Stop delivering objects to a node."""
        with self._lock:
            self._late.discard(name)
        self._nodes.drop(name)
        self._pods.drop(name)

    def close(self, seconds: float) -> None:
        """Wait up to ``seconds`` until the watches have ended. The caller must close the client
        first."""
        join_threads(self._threads, seconds)


class _Witness:
    """A Node of this process whose absence shows that the API server may have lost its data.

    The same Node is used until the API server no longer has it, even if the node has left or
    re-registered. A newer Node does not show the loss, because this process may have created it
    after the server lost its data.
    """

    def __init__(self, api: ApiClient, nodes: NodeInformer) -> None:
        self._api = api
        self._nodes = nodes
        self._node: tuple[str, str] | None = None

    def offer(self, name: str, uid: str) -> None:
        """Use this Node, unless there is one already."""
        if self._node is None:
            self._node = name, uid

    def exists(self) -> bool:
        """True if the API server still has the Node. If the Node is missing, later calls check
        another Node."""
        if self._node is None or _exists(self._api.attempt, *self._node):
            return True
        self._node = self._nodes.any()
        return False


class PerNodeWatches:
    """Two watches for each node, which impersonate the node.

    The Node authorizer lets a node read only its own pods and its own Node object.
    """

    def __init__(self, api: ApiClient, warn: Warn) -> None:
        self._api = api
        self._warn = warn
        # Guards the fields below.
        self._lock = threading.Lock()
        self._sources: dict[str, _NodeSource] = {}
        self._ending: list[threading.Thread] = []

    def expect(self, names: Collection[str]) -> None:
        """Do nothing: the watch of a node begins with a LIST of all its pods. See
        ``SharedWatches.expect``."""

    def add_handlers(self, name: str, node: NodeHandler, pods: PodHandler) -> None:
        """Start the watches of a node that has joined, and deliver its Node object and pods."""
        source = _NodeSource(self._api, name)
        with self._lock:
            self._sources[name] = source
        # The informers are those of shared watches, but have only one node.
        node_informer, pod_informer = NodeInformer(), PodInformer()
        node_informer.add_handler(name, node)
        pod_informer.expect(name)
        pod_informer.add_handler(name, pods)
        # This is the current UID, because a node can re-register on a new, empty server.
        is_same = partial(_exists, source.attempt, name, node.uid)
        for path, sink, field in (
            (_PODS, pod_informer, "spec.nodeName"),
            (_NODES, node_informer, "metadata.name"),
        ):
            query = {"fieldSelector": f"{field}={name}"}
            watch = Reflector(source, path, sink, query=query, is_same=is_same, warn=self._warn)
            source.threads.append(watch.start())

    def drop(self, name: str) -> None:
        """Stop the watches of a node."""
        with self._lock:
            source = self._sources.pop(name, None)
            if source is None:
                return
            # Without the ended threads. Otherwise the list would grow with each node that leaves.
            self._ending = [each for each in self._ending if each.is_alive()] + source.threads
        source.end()

    def close(self, seconds: float) -> None:
        """Stop all watches, and wait up to ``seconds`` until they have ended."""
        for name in list(self._sources):
            self.drop(name)
        join_threads(self._ending, seconds)


class _NodeSource:
    """API client that impersonates one node, until ``end``."""

    def __init__(self, api: ApiClient, node: str) -> None:
        self._api = api
        self._streams = OpenStreams()
        self._ended = threading.Event()
        self.attempt = partial(api.attempt, user=node)
        self.stream = partial(api.stream, user=node, streams=self._streams)
        self.threads: list[threading.Thread] = []
        """Threads of the node's watches."""

    @property
    def is_closing(self) -> bool:
        """True if the watches of the node must stop."""
        return self._ended.is_set() or self._api.is_closing

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; return True if the watches of the node must stop."""
        return self._ended.wait(seconds) or self._api.is_closing

    def end(self) -> None:
        """End the streams of the node; its watches then stop."""
        self._ended.set()
        self._streams.close()


def check_descriptors(nodes: int) -> None:
    """Raise ClusterError if the limit of open files is too low for two watches per node."""
    # Checked before nodes join, because a watch without a descriptor would only fail and retry.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * nodes + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and needed > soft:
        raise ClusterError(
            f"separate watches for {counted(nodes, 'node')} need {needed} open files, "
            f"but the limit is {soft}: raise the limit (ulimit -n) or use fewer nodes"
        )


def _exists(attempt: Callable[[str, str], JsonObject], name: str, uid: str) -> bool:
    """True if a Node with this name and UID exists on the API server."""
    try:
        found = attempt("GET", node_path(name))
    except NotFound:
        return False
    return bool(found["metadata"]["uid"] == uid)
