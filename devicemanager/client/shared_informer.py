"""Sinks of shared watches, which deliver pods and Node objects to their nodes.

A process can run thousands of nodes. One watch per node would need thousands of connections, and
put a heavy load on the API server. Therefore all nodes share one watch of all pods and one of all
Nodes.

The hard part is a node that joins while the watch runs. It must get every pod exactly once:
1. ``expect`` is called before the Node is created. From then on, the newest version of each pod of
   the node is collected by UID; a deleted pod is stored as None.
2. The collected pods are complete after the next LIST of the watch. If the watch already runs,
   they are complete after a LIST of only this node's pods (``complete``).
3. When the pods are complete and the node has a handler, they are passed to the handler in one
   call of ``on_pod_list``. Later events are passed to the handler directly.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Protocol

import attrs

from devicemanager.client.protocol import JsonObject
from devicemanager.client.validation import version_number

__all__ = ["NodeHandler", "NodeInformer", "PodHandler", "PodInformer"]


class PodHandler(Protocol):
    """Handler of the pods of one node. Methods are called one at a time and must not block."""

    def on_pod_list(self, objects: list[JsonObject]) -> None:
        """Handle the list of all pods of the node, before the first event and after each LIST."""

    def on_pod_event(self, kind: str, object_: JsonObject) -> None:
        """Handle an event of the watch about a pod of the node.

        ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``.
        """


class NodeHandler(Protocol):
    """Handler of one Node object. Methods are called one at a time and must not block."""

    @property
    def uid(self) -> str:
        """UID of the Node object."""

    def on_node_event(self, kind: str, object_: JsonObject) -> None:
        """Handle an event of the watch about the Node.

        ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``.
        """

    def verify(self) -> None:
        """Check whether the Node object still exists. Called if the object is missing from a LIST
        that may be older than the object."""


@attrs.define(eq=False)
class _Collected:
    """Pods of a node that were not passed to its handler yet."""

    handler: PodHandler | None = None
    pods: dict[str, tuple[int, JsonObject | None]] | None = attrs.Factory(dict)
    """Mapping from the UID of a pod to its version and object; the object is None if the pod was
    deleted. When the pods have been passed to the handler, the mapping is replaced by None."""
    is_complete: bool = False
    """True after a LIST that included the pods of this node."""


class PodInformer:
    """Sink that passes pods to the handlers of the nodes to which they are bound. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below. Handlers are called with the lock held, so that each gets its
        # events in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, _Collected] = {}
        # A dict, because the filter of the reflector reads its live view of keys without the lock.
        self._names: dict[bytes, None] = {}
        self._has_listed = False
        self._is_listing = False

    @property
    def names(self) -> Collection[bytes]:
        """Names, as UTF-8 bytes, of the nodes whose pods are collected or delivered. The view is
        live: ``expect`` and ``drop`` change it."""
        return self._names.keys()

    @property
    def has_listed(self) -> bool:
        """True after the first LIST. If ``expect`` is called for a node after that, call
        ``complete`` for the node."""
        return self._has_listed

    def expect(self, name: str) -> None:
        """Start to collect the pods of a node that is going to join."""
        with self._lock:
            self._nodes[name] = _Collected()
            self._names[name.encode()] = None

    def add_handler(self, name: str, handler: PodHandler) -> None:
        """Pass the pods of a node to ``handler`` once all of them are known. Then pass all later
        events.

        Does nothing after ``drop``.
        """
        with self._lock:
            known = self._nodes.get(name)
            if known is None:
                return
            known.handler = handler
            self._hand_over(known)

    def complete(self, name: str, objects: list[JsonObject]) -> None:
        """Add ``objects``, the result of a LIST of one node's pods. All pods of the node are then
        known.

        If an event has reported another version of a pod, the newer version counts. Does nothing
        during a LIST of all pods, because that LIST provides the node's pods.
        """
        with self._lock:
            known = self._nodes.get(name)
            # A LIST that has begun can be older than ``objects``: it would take pods away again.
            if known is None or known.pods is None or self._is_listing:
                return
            for each in objects:
                _keep_newer(known.pods, each, each)
            known.is_complete = True
            self._hand_over(known)

    def drop(self, name: str) -> None:
        """Stop delivering pods to a node."""
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
        """Record that a LIST of all pods has begun; see ``complete``."""
        with self._lock:
            self._is_listing = True

    def replace(self, objects: list[JsonObject]) -> None:
        """Pass a LIST of all pods to the handlers of their nodes."""
        # Grouped without the lock, because nodes that join or leave wait for the lock.
        by_node = defaultdict(list)
        for each in objects:
            by_node[_node_name(each)].append(each)
        with self._lock:
            self._has_listed, self._is_listing = True, False
            for name, known in self._nodes.items():
                pods = by_node.get(name, [])
                if known.pods is None and known.handler is not None:
                    known.handler.on_pod_list(pods)
                    continue
                # The list is newer than all collected events, because this thread delivered them
                # before.
                known.pods = {}
                for each in pods:
                    _keep_newer(known.pods, each, each)
                known.is_complete = True
                self._hand_over(known)

    def apply(self, kind: str, object_: JsonObject) -> None:
        """Pass a changed or deleted pod to the handler of its node."""
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
    """Store ``value`` for the pod ``object_``, unless a newer version of the pod is stored."""
    metadata = object_["metadata"]
    uid, version = metadata["uid"], version_number(metadata)
    # If the server's versions are not numbers, all count as 0, and the last call wins.
    if pods.get(uid, (0, None))[0] <= version:
        pods[uid] = version, value


class NodeInformer:
    """Sink that passes Node objects to the handlers of the nodes of this process. Thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below. Handlers are called under it, so that each gets its events
        # in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeHandler] = {}
        self._before_list: set[str] = set()
        self._expected: dict[str, JsonObject | None] = {}
        """The Nodes that are going to join, by name. The value is the last object of a Node that
        was deleted since ``expect``, else None. ``add_handler`` removes the entry."""

    def expect(self, name: str) -> None:
        """Record, from now on, whether the Node ``name`` is deleted. Call this method before the
        node joins."""
        with self._lock:
            self._expected[name] = None

    def add_handler(self, name: str, node: NodeHandler) -> None:
        """Pass the events of the Node object ``name`` to the handler ``node``.

        If the Node was deleted since ``expect``, the handler gets the event ``DELETED`` at once.
        """
        with self._lock:
            self._nodes[name] = node
            if (deleted := self._expected.pop(name, None)) is not None:
                node.on_node_event("DELETED", deleted)

    def drop(self, name: str) -> None:
        """Stop delivering events to a node."""
        with self._lock:
            self._nodes.pop(name, None)
            self._expected.pop(name, None)

    def any(self) -> tuple[str, str] | None:
        """Return name and UID of one node; None if no node has joined."""
        with self._lock:
            return next(((name, node.uid) for name, node in self._nodes.items()), None)

    def begin_list(self) -> None:
        """Record which nodes have joined before the LIST.

        If the Node of a recorded node is missing from the LIST, the Node was deleted.
        """
        with self._lock:
            self._before_list = set(self._nodes)

    def replace(self, objects: list[JsonObject]) -> None:
        """Pass each Node of a LIST to its handler.

        If a Node joined before the LIST began and is missing from the LIST, it was deleted. A Node
        that joined later can be missing because the LIST is older, or because the Node was deleted
        before the LIST. No event would report this deletion, so the handler must ``verify`` that
        the Node still exists.
        """
        found = {each["metadata"]["name"]: each for each in objects}
        with self._lock:
            for name, node in list(self._nodes.items()):
                if name in found:
                    node.on_node_event("MODIFIED", found[name])
                elif name in self._before_list:
                    node.on_node_event("DELETED", {"metadata": {"name": name, "uid": node.uid}})
                else:
                    node.verify()

    def apply(self, kind: str, object_: JsonObject) -> None:
        """Pass a changed or deleted Node to its handler."""
        with self._lock:
            name = object_["metadata"]["name"]
            node = self._nodes.get(name)
            if node is not None:
                node.on_node_event(kind, object_)
            elif kind == "DELETED" and name in self._expected:
                self._expected[name] = object_
