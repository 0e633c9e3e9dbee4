"""Convert the changes in a store to the events and bookmarks of a watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from devicemanager.apiserver.conversion import from_stored
from devicemanager.apiserver.encoding import object_text
from devicemanager.apiserver.errors import status
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.selectors import Selector
from devicemanager.apiserver.store import Change, Object, Store, Stored
from devicemanager.apiserver.structure import has_structure, pruned

__all__ = ["Watch"]

_INITIAL_END: Final = "k8s.io/initial-events-end"


class Watch:
    """One WATCH request. ``lines`` yields its events and bookmarks."""

    def __init__(
        self,
        store: Store,
        target: Target,
        chosen: Selector,
        since: int,
        seconds: float,
        *,
        initial: bool | None = None,
    ) -> None:
        """Create a watch of the objects for which ``chosen`` returns True.

        ``since``: the watch sends changes after this version; 0 means the current version.
        ``seconds``: time limit of the watch.
        ``initial``: True to send the current objects and a bookmark first, and then later changes.
        False to send only changes. None to send the current objects first if ``since`` is 0.
        """
        self._initial = initial
        self._store = store
        self._target = target
        self._chosen = chosen
        self._since = since
        self._seconds = seconds

    def lines(self, bookmark_every: float, is_over: Callable[[], bool]) -> Iterator[bytes]:
        """Yield each event and bookmark as a line of JSON.

        The iterator ends at the time limit of the watch, after an error, or when ``is_over``
        returns True.

        ``bookmark_every``: interval of bookmarks in seconds.
        """
        end = time.monotonic() + self._seconds
        bookmark = time.monotonic() + bookmark_every
        at = self._since
        # Version 0 means any version, so the watch starts with the current objects.
        if self._initial or not at:
            with self._store.lock:
                at = self._store.version
                found = self._store.all(self._target.kind, self._target.namespace)
            if self._initial is not False:
                for stored in found:
                    if self._chosen(stored.value):
                        yield _line("ADDED", object_text(self._target, stored))
            if self._initial:
                yield _line("BOOKMARK", self._bookmark(at, {_INITIAL_END: "true"}))
        while not is_over() and (now := time.monotonic()) < end:
            if at < self._store.oldest:
                error = status(410, "Expired", f"too old resource version: {at}")
                yield _line("ERROR", json.dumps(error).encode())
                return
            if now >= bookmark:
                bookmark = now + bookmark_every
                yield _line("BOOKMARK", self._bookmark(at))
            for change in self._store.after(at, min(end, bookmark) - now, is_over):
                # Changes of other kinds also advance the version. Otherwise a watch without events
                # would expire.
                at = change.version
                if change.kind == self._target.kind:
                    yield from self._event(change)

    def _bookmark(self, at: int, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: Object = {"resourceVersion": str(at)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        kind = self._target.kind
        body: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if has_structure(kind.api_version, kind.name):
            # An object of the watched kind, with only the fields that every object has.
            body = pruned(body, kind.api_version, kind.name)
        body = from_stored(kind, self._target.api_version, body)
        return json.dumps(body).encode()

    def _event(self, change: Change) -> Iterator[bytes]:
        """Yield the event of a change, if the watch selects the object.

        An object that the watch no longer selects is reported as deleted.
        """
        before, after = self._is_chosen(change.before), self._is_chosen(change.after)
        if after and change.after is not None:
            yield _line("MODIFIED" if before else "ADDED", object_text(self._target, change.after))
        elif before and (last := change.after or change.before) is not None:
            yield _line("DELETED", object_text(self._target, last))

    def _is_chosen(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        namespace = self._target.namespace
        if namespace and stored.value["metadata"].get("namespace") != namespace:
            return False
        return self._chosen(stored.value)


def _line(kind: str, object_: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), object_)
