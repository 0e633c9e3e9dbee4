"""Sinks of shared watches: one watch of all pods and one of all Nodes, dispatched by node.

A process can run thousands of nodes. One watch per node would cost a connection each and wake
the API server's watch cache for every one, so all nodes share two watches.

The hard part is a node that joins while the watch runs. It must see every pod exactly once:
1. It is expected before its Node is created. From then on its pods are collected by UID, the
   newest version of each, and deleted ones as None.
2. The pods are complete after the next LIST of the watch, or, if the watch already runs, after
   a LIST of this node alone (``complete``).
3. Once the pods are complete and the node has a handler, they are handed over in one
   ``on_pod_list``. Later events go straight to the handler.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Protocol

import attrs

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import version_number

__all__ = ["NodeHandler", "NodeInformer", "PodHandler", "PodInformer"]


class PodHandler(Protocol):
    """Handler of the pods of one node. Calls come one at a time and must not block."""

    def on_pod_list(self, objects: list[JsonObject]) -> None:
        """All pods of the node: before the first event, and after each LIST."""

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """A pod of the node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""


class NodeHandler(Protocol):
    """Handler of one Node. Calls come one at a time and must not block."""

    @property
    def uid(self) -> str:
        """UID of the Node."""

    def on_node_event(self, kind: str, object_: JsonObject) -> None:
        """The Node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""


@attrs.define(eq=False)
class _Collected:
    """Pods of a node that were not handed over yet."""

    handler: PodHandler | None = None
    pods: dict[str, tuple[int, JsonObject | None]] | None = attrs.Factory(dict)
    """Version and object by UID, None for a deleted pod; None once handed over."""
    is_complete: bool = False
    """True after a LIST that included this node."""


class PodInformer:
    """Sink that dispatches pods to the nodes they are bound to. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below. Handlers are called under it, so that each gets its events
        # in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, _Collected] = {}
        # A dict for its live key view: the filter of the reflector sees changes without the lock.
        self._names: dict[bytes, None] = {}
        self._has_listed = False

    @property
    def names(self) -> Collection[bytes]:
        """Live view of the expected nodes' names, encoded as in an event."""
        return self._names.keys()

    @property
    def has_listed(self) -> bool:
        """True after the first LIST: a node expected later needs ``complete``."""
        return self._has_listed

    def expect(self, name: str) -> None:
        """Collect the pods of a node that is going to join."""
        with self._lock:
            self._nodes[name] = _Collected()
            self._names[name.encode()] = None

    def add_handler(self, name: str, handler: PodHandler) -> None:
        """Deliver a node's pods, once they are complete. Does nothing after ``drop``."""
        with self._lock:
            known = self._nodes.get(name)
            if known is None:
                return
            known.handler = handler
            self._hand_over(known)

    def complete(self, name: str, objects: list[JsonObject]) -> None:
        """Add a LIST of this node's pods. Newer versions that were collected win."""
        with self._lock:
            known = self._nodes.get(name)
            if known is None or known.pods is None:
                return
            for each in objects:
                _keep_newer(known.pods, each, each)
            known.is_complete = True
            self._hand_over(known)

    def drop(self, name: str) -> None:
        """Stop the delivery to a node."""
        with self._lock:
            self._nodes.pop(name, None)
            self._names.pop(name.encode(), None)

    def _hand_over(self, known: _Collected) -> None:
        if known.handler is None or known.pods is None or not known.is_complete:
            return
        pods, known.pods = known.pods, None
        known.handler.on_pod_list([pod for _, pod in pods.values() if pod is not None])

    # -- as a sink -------------------------------------------------------------------

    def begin_list(self) -> None:
        """As in ``reflector.Sink``."""

    def replace(self, objects: list[JsonObject]) -> None:
        """As in ``reflector.Sink``."""
        by_node = defaultdict(list)
        for each in objects:
            by_node[_node_name(each)].append(each)
        with self._lock:
            self._has_listed = True
            for name, known in self._nodes.items():
                pods = by_node.get(name, [])
                if known.pods is None and known.handler is not None:
                    known.handler.on_pod_list(pods)
                    continue
                # The list is newer than the events collected before it, which came on this
                # thread.
                known.pods = {}
                for each in pods:
                    _keep_newer(known.pods, each, each)
                known.is_complete = True
                self._hand_over(known)

    def apply(self, kind: str, object_: JsonObject) -> None:
        """As in ``reflector.Sink``."""
        with self._lock:
            known = self._nodes.get(_node_name(object_))
            if known is None:
                return
            if known.pods is not None:
                # Remember a deletion: a LIST that started earlier can still contain the pod.
                _keep_newer(known.pods, object_, None if kind == "DELETED" else object_)
            elif known.handler is not None:
                known.handler.on_pod_event(kind, object_)


def _node_name(pod: JsonObject) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def _keep_newer(
    pods: dict[str, tuple[int, JsonObject | None]], object_: JsonObject, value: JsonObject | None
) -> None:
    """Store ``value`` for a pod unless a newer version of the pod is stored."""
    metadata = object_["metadata"]
    uid, version = metadata["uid"], version_number(metadata)
    if pods.get(uid, (0, None))[0] <= version:
        pods[uid] = version, value


class NodeInformer:
    """Sink that dispatches Nodes to the nodes of this process. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below. Handlers are called under it, so that each gets its events
        # in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeHandler] = {}
        self._uids: dict[str, str] = {}
        self._before_list: set[str] = set()

    def add_handler(self, name: str, node: NodeHandler) -> None:
        """Deliver the events of a node that has joined."""
        with self._lock:
            self._nodes[name] = node
            self._uids[name] = node.uid

    def drop(self, name: str) -> None:
        """Stop the delivery to a node."""
        with self._lock:
            self._nodes.pop(name, None)
            self._uids.pop(name, None)

    def any(self) -> tuple[str, str] | None:
        """Return name and UID of one node, to check whether the server still has it.

        A node that has re-registered since it joined may have done so on a new, empty
        server. Prefer one that has not; else return the UID with which a node joined.
        """
        with self._lock:
            joined = list(self._uids.items())
            same = (each for each in joined if self._nodes[each[0]].uid == each[1])
            return next(same, joined[0] if joined else None)

    def begin_list(self) -> None:
        """As in ``reflector.Sink``."""
        with self._lock:
            self._before_list = set(self._nodes)

    def replace(self, objects: list[JsonObject]) -> None:
        """As in ``reflector.Sink``."""
        found = {each["metadata"]["name"]: each for each in objects}
        with self._lock:
            for name, node in list(self._nodes.items()):
                if name in found:
                    node.on_node_event("MODIFIED", found[name])
                # A node that joined after the LIST began can be missing from it.
                elif name in self._before_list:
                    node.on_node_event("DELETED", {"metadata": {"name": name, "uid": node.uid}})

    def apply(self, kind: str, object_: JsonObject) -> None:
        """As in ``reflector.Sink``."""
        with self._lock:
            node = self._nodes.get(object_["metadata"]["name"])
            if node is not None:
                node.on_node_event(kind, object_)
