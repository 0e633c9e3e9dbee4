"""All objects in memory, with one version for all and what happened since."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from devicemanager.cluster.fake_apiserver.kinds import Kind

__all__ = ["Change", "Store", "Stored"]

KEPT: Final = 100_000
"""How many changes are kept for who watches."""

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""


@attrs.frozen(eq=False)
class Stored:
    """An object at one version; nobody changes ``value``."""

    value: Object
    version: int
    text: bytes
    """As it is sent."""


@attrs.frozen(eq=False)
class Change:
    """From ``before`` to ``after``; None is not there."""

    version: int
    kind: Kind
    before: Stored | None
    after: Stored | None


class Store:
    """May be used from any thread; ``with store.lock`` makes several steps one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._changes: deque[Change] = deque()
        self.version = 1
        self.oldest = 1
        """Changes after this version are kept."""

    def get(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """An object, if it is there."""
        with self.lock:
            return self._objects.get(kind.plural, {}).get((namespace, name))

    def all(self, kind: Kind, namespace: str = "") -> list[Stored]:
        """All objects of a kind, by namespace and name; of one namespace if one is given."""
        with self.lock:
            objects = self._objects.get(kind.plural, {})
            return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def put(self, kind: Kind, value: Object) -> Stored:
        """Create or replace; the store takes the object over and gives it a version."""
        with self.lock:
            metadata = value["metadata"]
            key = metadata.get("namespace", ""), metadata["name"]
            before = self._objects.setdefault(kind.plural, {}).get(key)
            after = self._next(value)
            self._objects[kind.plural][key] = after
            self._note(Change(self.version, kind, before, after))
            return after

    def remove(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Take an object away; returns how it was, at the version of its end."""
        with self.lock:
            before = self._objects[kind.plural].pop((namespace, name))
            value = {**before.value, "metadata": dict(before.value["metadata"])}
            last = self._next(value)
            self._note(Change(self.version, kind, last, None))
            return last

    def _next(self, value: Object) -> Stored:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        return Stored(value, self.version, json.dumps(value, separators=(",", ":")).encode())

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > KEPT:
            self.oldest = self._changes.popleft().version
        self._changed.notify_all()

    def forget(self) -> None:
        """Keep no change until now: whoever watches from before has to LIST again."""
        with self.lock:
            self._changes.clear()
            self.oldest = self.version

    def wake(self) -> None:
        """Let all who wait look up."""
        with self.lock:
            self._changed.notify_all()

    def after(self, version: int, seconds: float, until: Callable[[], bool]) -> Iterator[Change]:
        """What happened after a version; waits so long for something, or ``until`` is true."""
        with self.lock:
            self._changed.wait_for(lambda: self.version > version or until(), seconds)
            found = []
            for change in reversed(self._changes):
                if change.version <= version:
                    break
                found.append(change)
        return reversed(found)
