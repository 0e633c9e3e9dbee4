"""One watch of all pods, and one of all nodes, told to the nodes they are about."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Protocol

import attrs

from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.validation import version_number

__all__ = ["Member", "NodeFanout", "PodFanout", "Receiver"]


class Receiver(Protocol):
    """The pods of one node. Calls come one at a time and must not block."""

    def listed(self, objects: list[JsonObject]) -> None:
        """All pods of the node: once before anything else, and after each LIST."""

    def seen(self, kind: str, object_: JsonObject) -> None:
        """A pod of the node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""


@attrs.define(eq=False)
class _Known:
    """What is known of one node's pods before somebody receives it."""

    receiver: Receiver | None = None
    pods: dict[str, tuple[int, JsonObject | None]] | None = attrs.Factory(dict)
    """By UID: version and object, None for one that is gone; None once all is handed over."""
    is_whole: bool = False
    """Whether a LIST told about this node."""


class Member(Protocol):
    """A node that has joined. Calls come one at a time and must not block."""

    @property
    def uid(self) -> str:
        """Of its Node."""

    def seen(self, kind: str, object_: JsonObject) -> None:
        """The Node was ``ADDED``, ``MODIFIED`` or ``DELETED``."""


class PodFanout:
    """A sink for a watch of the pods of all nodes. May be used from any thread.

    A node is expected before it joins, so that nothing that happens meanwhile is missed, and
    is told all once it receives.
    """

    def __init__(self) -> None:
        # Guards the fields below. Receivers are called under it, so that each is told in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, _Known] = {}
        self._names: dict[bytes, None] = {}
        self._has_listed = False

    @property
    def names(self) -> Collection[bytes]:
        """The nodes that are expected, as they stand in an event; grows and shrinks."""
        return self._names.keys()

    @property
    def has_listed(self) -> bool:
        """Whether a LIST came already: then a node expected now needs one of its own."""
        return self._has_listed

    def expect(self, name: str) -> None:
        """Keep what comes for this node."""
        with self._lock:
            self._nodes[name] = _Known()
            self._names[name.encode()] = None

    def receive(self, name: str, receiver: Receiver) -> None:
        """Tell this node everything, as soon as all is known; nothing if it has been dropped."""
        with self._lock:
            known = self._nodes.get(name)
            if known is None:
                return
            known.receiver = receiver
            self._hand_over(known)

    def complete(self, name: str, objects: list[JsonObject]) -> None:
        """A LIST of this node's pods alone; what came meanwhile is newer."""
        with self._lock:
            known = self._nodes.get(name)
            if known is None or known.pods is None:
                return
            for each in objects:
                _keep(known.pods, each, each)
            known.is_whole = True
            self._hand_over(known)

    def drop(self, name: str) -> None:
        """This node is no more."""
        with self._lock:
            self._nodes.pop(name, None)
            self._names.pop(name.encode(), None)

    def _hand_over(self, known: _Known) -> None:
        if known.receiver is None or known.pods is None or not known.is_whole:
            return
        pods, known.pods = known.pods, None
        known.receiver.listed([pod for _, pod in pods.values() if pod is not None])

    # -- as a sink -------------------------------------------------------------------

    def listing(self) -> None:
        """As ``watch.Sink``."""

    def listed(self, objects: list[JsonObject]) -> None:
        """As ``watch.Sink``."""
        by_node = defaultdict(list)
        for each in objects:
            by_node[_bound_to(each)].append(each)
        with self._lock:
            self._has_listed = True
            for name, known in self._nodes.items():
                pods = by_node.get(name, [])
                if known.pods is None and known.receiver is not None:
                    known.receiver.listed(pods)
                    continue
                known.pods = {}
                for each in pods:
                    _keep(known.pods, each, each)
                known.is_whole = True
                self._hand_over(known)

    def seen(self, kind: str, object_: JsonObject) -> None:
        """As ``watch.Sink``."""
        with self._lock:
            known = self._nodes.get(_bound_to(object_))
            if known is None:
                return
            if known.pods is not None:
                _keep(known.pods, object_, None if kind == "DELETED" else object_)
            elif known.receiver is not None:
                known.receiver.seen(kind, object_)


def _bound_to(pod: JsonObject) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def _keep(
    pods: dict[str, tuple[int, JsonObject | None]], about: JsonObject, kept: JsonObject | None
) -> None:
    """Keep the newer of two versions of a pod."""
    metadata = about["metadata"]
    uid, version = metadata["uid"], version_number(metadata)
    if pods.get(uid, (0, None))[0] <= version:
        pods[uid] = version, kept


class NodeFanout:
    """A sink for a watch of our Nodes. May be used from any thread."""

    def __init__(self) -> None:
        # Guards the fields below. Nodes are called under it, so that each is told in order.
        self._lock = threading.Lock()
        self._nodes: dict[str, Member] = {}
        self._uids: dict[str, str] = {}
        self._asked: set[str] = set()

    def receive(self, name: str, node: Member) -> None:
        """Tell this node, which has joined, of what happens to its object."""
        with self._lock:
            self._nodes[name] = node
            self._uids[name] = node.uid

    def drop(self, name: str) -> None:
        """This node is no more."""
        with self._lock:
            self._nodes.pop(name, None)
            self._uids.pop(name, None)

    def any(self) -> tuple[str, str] | None:
        """Name and UID of one that has joined, if possible of one that has not registered again
        since; else with the UID that it had before: a server that it registered with again may
        be a new one."""
        with self._lock:
            joined = list(self._uids.items())
            same = (each for each in joined if self._nodes[each[0]].uid == each[1])
            return next(same, joined[0] if joined else None)

    def listing(self) -> None:
        """As ``watch.Sink``: who joins from here on may be missing from what is listed."""
        with self._lock:
            self._asked = set(self._nodes)

    def listed(self, objects: list[JsonObject]) -> None:
        """As ``watch.Sink``."""
        there = {each["metadata"]["name"]: each for each in objects}
        with self._lock:
            for name, node in list(self._nodes.items()):
                if name in there:
                    node.seen("MODIFIED", there[name])
                elif name in self._asked:
                    node.seen("DELETED", {"metadata": {"name": name, "uid": node.uid}})

    def seen(self, kind: str, object_: JsonObject) -> None:
        """As ``watch.Sink``."""
        with self._lock:
            node = self._nodes.get(object_["metadata"]["name"])
            if node is not None:
                node.seen(kind, object_)
