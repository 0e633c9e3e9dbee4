"""One WATCH: the events of what is chosen, and bookmarks in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from devicemanager.cluster.fake_apiserver.answers import status
from devicemanager.cluster.fake_apiserver.kinds import Target
from devicemanager.cluster.fake_apiserver.selectors import Selector
from devicemanager.cluster.fake_apiserver.store import Change, Store, Stored

__all__ = ["Watching"]


class Watching:
    """From a version on, for so many seconds."""

    def __init__(
        self, store: Store, target: Target, chosen: Selector, since: int, seconds: float
    ) -> None:
        self._store = store
        self._target = target
        self._chosen = chosen
        self._since = since
        self._seconds = seconds

    def lines(self, bookmark_every: float, is_over: Callable[[], bool]) -> Iterator[bytes]:
        """Each event as a line; ends in time, after an error, or once ``is_over``."""
        end = time.monotonic() + self._seconds
        bookmark = time.monotonic() + bookmark_every
        at = self._since
        if not at:
            at = self._store.version
            for stored in self._store.all(self._target.kind, self._target.namespace):
                if self._chosen(stored.value):
                    yield _line("ADDED", stored.text)
        while not is_over() and (now := time.monotonic()) < end:
            if at < self._store.oldest:
                error = status(410, "Expired", f"too old resource version: {at}")
                yield _line("ERROR", json.dumps(error).encode())
                return
            if now >= bookmark:
                bookmark = now + bookmark_every
                yield _line("BOOKMARK", self._bookmark(at))
            for change in self._store.after(at, min(end, bookmark) - now, is_over):
                at = change.version
                if change.kind is self._target.kind:
                    yield from self._event(change)

    def _bookmark(self, at: int) -> bytes:
        kind = self._target.kind
        metadata = {"resourceVersion": str(at), "creationTimestamp": None}
        body = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        return json.dumps(body).encode()

    def _event(self, change: Change) -> Iterator[bytes]:
        """To a watcher an object that is chosen no longer is deleted."""
        before, after = self._is_chosen(change.before), self._is_chosen(change.after)
        if after and change.after is not None:
            yield _line("MODIFIED" if before else "ADDED", change.after.text)
        elif before and (last := change.after or change.before) is not None:
            yield _line("DELETED", last.text)

    def _is_chosen(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        namespace = self._target.namespace
        if namespace and stored.value["metadata"].get("namespace") != namespace:
            return False
        return self._chosen(stored.value)


def _line(kind: str, object_: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), object_)
