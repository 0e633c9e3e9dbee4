"""In-memory store of objects, with one version counter and a log of changes."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.kinds import Kind

__all__ = ["Change", "Object", "Store", "Stored"]

MAX_CHANGES: Final = 100_000
"""Maximum number of changes that are stored for watches.

A watch gets 410 if it needs a change that the store has already dropped.
"""
MAX_OBJECT: Final = 3 << 19
"""Maximum size of an object as JSON, in bytes (``DefaultMaxRequestBytes`` of etcd).

Without this limit, patches could make an object larger than any request.
"""
MAX_CHANGED_BYTES: Final = 256 << 20
"""Maximum size of all stored changes together, in bytes of JSON.

Without this limit, changes of large objects would fill the memory.
"""

Object = dict[str, Any]
"""A Kubernetes object as JSON data (dicts, lists, strings, …)."""

Key = tuple[str, str]
"""Namespace and name of an object. The namespace of a cluster-scoped object is empty."""


@attrs.frozen(eq=False)
class Stored:
    """One version of a stored object. ``value`` must not be modified."""

    value: Object
    version: int
    text: bytes
    """The object as JSON, encoded once for all readers."""

    @property
    def item(self) -> bytes:
        """The object as a list item in JSON, without ``apiVersion`` and ``kind``."""
        # These two are the first fields of every stored object.
        return b"{" + self.text.split(b",", 2)[2]


@attrs.frozen(eq=False)
class Change:
    """A change of an object.

    ``before`` is None for a new object, and ``after`` is None for a deleted object.
    """

    version: int
    kind: Kind
    before: Stored | None
    after: Stored | None

    @property
    def size(self) -> int:
        """Size of the object after the change, as JSON in bytes; for a deletion, before the
        change."""
        stored = self.after or self.before
        return 0 if stored is None else len(stored.text)


class Store:
    """Store of all objects of the server. Thread-safe.

    Use ``with store.lock`` to make several calls atomic.
    """

    def __init__(self) -> None:
        # Reentrant: a caller that holds the lock calls methods that take it.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._changes: deque[Change] = deque()
        self._changed_bytes = 0
        self.version = 1
        self.oldest = 1
        """Oldest version from which a watch can start. A watch from an earlier version gets 410."""

    def copied(self) -> Store:
        """Return a store with the same objects and version. Its log of changes is empty."""
        found = Store()
        with self.lock:
            found._objects = {name: dict(objects) for name, objects in self._objects.items()}
            found.version = found.oldest = self.version
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """Return an object; None if it does not exist."""
        with self.lock:
            return self._objects.get(kind.qualified, {}).get((namespace, name))

    def all(self, kind: Kind, namespace: str = "") -> list[Stored]:
        """Return all objects of a kind, sorted by namespace and name; with ``namespace``, only
        those in this namespace."""
        with self.lock:
            objects = self._objects.get(kind.qualified, {})
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def put(self, kind: Kind, value: Object) -> Stored:
        """Store a new or changed object with the next version, and return it. Raises StatusError
        if the object is too large.

        The caller must not use ``value`` afterwards.
        """
        with self.lock:
            metadata = value["metadata"]
            key = metadata.get("namespace", ""), metadata["name"]
            before = self._objects.setdefault(kind.qualified, {}).get(key)
            after = self._next(value)
            self._objects[kind.qualified][key] = after
            self._note(Change(self.version, kind, before, after))
            return after

    def remove(
        self, kind: Kind, namespace: str, name: str, last_value: Object | None = None
    ) -> Stored:
        """Delete an object; return its last state, with the version of the deletion.

        ``last_value``: the last state, which is returned and sent to watches; None if it is the
        stored object.
        """
        with self.lock:
            objects = self._objects[kind.qualified]
            value = objects[namespace, name].value if last_value is None else last_value
            last = self._next({**value, "metadata": dict(value["metadata"])})
            del objects[namespace, name]
            self._note(Change(self.version, kind, last, None))
            return last

    def _next(self, value: Object) -> Stored:
        version = self.version + 1
        value["metadata"]["resourceVersion"] = str(version)
        value = {"apiVersion": value.get("apiVersion"), "kind": value.get("kind")} | value
        # No spaces, as on a real server: the watch filter searches for the text `"nodeName":"`.
        text = json.dumps(value, separators=(",", ":")).encode()
        if len(text) > MAX_OBJECT:
            raise StatusError(500, "etcdserver: request is too large", "")
        self.version = version
        return Stored(value, version, text)

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self._changed_bytes += change.size
        # The newest change remains, because running watches need it.
        while len(self._changes) > MAX_CHANGES or (
            self._changed_bytes > MAX_CHANGED_BYTES and len(self._changes) > 1
        ):
            removed = self._changes.popleft()
            self._changed_bytes -= removed.size
            self.oldest = removed.version
        self._changed.notify_all()

    def forget(self) -> None:
        """Remove all stored changes, so that watches from an earlier version must relist."""
        with self.lock:
            self._changes.clear()
            self._changed_bytes = 0
            self.oldest = self.version

    def wake(self) -> None:
        """Wake all calls of ``after`` that wait. Each of them checks again whether the wait must
        end."""
        with self.lock:
            self._changed.notify_all()

    def after(self, version: int, seconds: float, until: Callable[[], bool]) -> Iterator[Change]:
        """Return the changes after a version, oldest first.

        If no change is newer, wait up to ``seconds`` for one. The wait also ends if the function
        ``until`` returns True; the store calls it before the wait and after each ``wake``.
        """
        with self.lock:
            self._changed.wait_for(lambda: self.version > version or until(), seconds)
            found = []
            # Search from the newest change: a watch usually needs only the last few.
            for change in reversed(self._changes):
                if change.version <= version:
                    break
                found.append(change)
        return reversed(found)
