"""LIST, then WATCH, as client-go's reflector does (``tools/cache/reflector.go``, v0.32).

How a watch ends, and what follows:
* Normally, after 5 to 10 minutes: watch again from the last resource version.
* 410 Gone, as a response or as an ERROR event: relist.
* A broken connection or another error: back off, check ``is_same``, then watch again.
* An exception of the sink: a bug. Log it and relist, because the sink may have missed an event.

One difference from client-go: the LIST reads pages from etcd, not everything at once from the
server's watch cache. With thousands of pods neither side then holds the list twice.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from devicemanager.cluster.client.errors import ApiError, ClientClosing, Gone, Unavailable
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import Warn, truncate
from devicemanager.cluster.client.validation import decoded, defect, list_items, list_metadata

__all__ = ["Reflector", "Sink", "Source", "pages", "pods_on"]

FIRST_WAIT: Final = 0.8
LONGEST_WAIT: Final = 30.0
CALM: Final = 120.0
"""Seconds without a failure after which the backoff starts again."""
SHORT: Final = 1.0
"""A stream that ends sooner, in seconds, counts as a failure even if it delivered events."""
SILENCE: Final = 150.0
"""Seconds without a byte after which a stream is broken: bookmarks come every minute."""
_PAGE_SIZE: Final = 500
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_MAX_TEXT: Final = 300
# A search in the bytes is much cheaper than decoding the event.
_NODE_NAME: Final = re.compile(rb'"nodeName":"([^"]*)"')

Wants = Callable[[bytes], bool]
"""Filter of raw events, applied before they are decoded; False drops an event."""


class Sink(Protocol):
    """Receiver of objects and events. Called by one thread."""

    def begin_list(self) -> None:
        """A LIST starts: objects created from now on may be missing from it."""

    def replace(self, objects: list[JsonObject]) -> None:
        """Full list: objects that are not in it were deleted."""

    def apply(self, kind: str, object_: JsonObject) -> None:
        """An object was ``ADDED``, ``MODIFIED`` or ``DELETED``; with its current state, or its
        last one."""


class Source(Protocol):
    """What a reflector uses of the API client."""

    @property
    def is_closing(self) -> bool:
        """True if the reflector must end."""

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; return True if the reflector must end."""

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Send one request, once."""

    def stream(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a stream and return its lines."""


class Reflector:
    """List and watch that keep a sink up to date with all objects of one path."""

    def __init__(
        self,
        source: Source,
        path: str,
        sink: Sink,
        *,
        query: Mapping[str, str] | None = None,
        wants: Wants = lambda line: True,
        is_same: Callable[[], bool] = lambda: True,
        warn: Warn = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``query`` selects objects. ``wants`` filters events, not lists. ``is_same`` is called
        after a failure; it returns False if the server lost its data. It may raise as requests
        do."""
        self._source = source
        self._path = path
        self._sink = sink
        self._query = dict(query or {})
        self._wants = wants
        self._is_same = is_same
        self._warn = warn
        self._monotonic = monotonic
        self._version: str | None = None
        self._failures = 0

    def start(self) -> threading.Thread:
        """Call ``run`` on a new thread."""
        thread = threading.Thread(target=self.run, name=f"watch {self._path}", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """LIST and WATCH until the source is closing."""
        while not self._source.is_closing:
            began = self._monotonic()
            try:
                if self._version is None:
                    self._version = self._list()
                elif self._failures and not self._is_same():
                    # A server on a new etcd counts versions from 1. A watch from our version,
                    # which is in its future, would be accepted and stay silent.
                    self._version = self._list()
                self._watch(self._version)
            except ClientClosing:
                return
            except Gone:
                self._version = None
                self._pause(began)
            except (Unavailable, ApiError) as error:
                if self._source.is_closing:
                    return
                self._warn(f"cannot watch {self._path}, retrying: {error}")
                self._pause(began, error.wait if isinstance(error, Unavailable) else 0.0)
            except Exception as error:
                self._warn(f"{self._path}: unexpected {type(error).__name__}: {error} (a bug)")
                self._version = None
                self._pause(began)
            else:
                # A server or proxy that ends streams at once must not cause a busy loop.
                if self._monotonic() - began < SHORT:
                    self._pause(began)

    def _pause(self, began: float, retry_after: float = 0.0) -> None:
        """Wait with exponential backoff and jitter, at least as long as the server asks."""
        self._failures = 0 if self._monotonic() - began > CALM else self._failures + 1
        most = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures, 10))
        self._source.wait(max(retry_after, random.uniform(most / 2, most)))

    # -- LIST ------------------------------------------------------------------------

    def _list(self) -> str:
        """Send all objects to the sink; return the resource version to watch from."""
        self._sink.begin_list()
        found: list[JsonObject] = []
        version = ""
        for page in pages(self._source, self._path, self._query):
            found += (
                _without_managed_fields(each)
                for each in list_items(page)
                if self._is_well_formed(each)
            )
            # All pages are of one snapshot and have its version.
            version = str(list_metadata(page).get("resourceVersion", ""))
        self._sink.replace(found)
        return version

    def _is_well_formed(self, object_: Any) -> bool:
        found = defect(object_)
        if found:
            metadata = object_.get("metadata") if isinstance(object_, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else None
            self._warn(f"{self._path}: {truncate(str(name))} skipped: {found}")
        return not found

    # -- WATCH -----------------------------------------------------------------------

    def _watch(self, version: str) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            # Random, as in client-go, so that not all watches of a cluster end together.
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        with self._source.stream(self._path, query, silence=SILENCE) as lines:
            for line in lines:
                # Closing ends the stream, but events may be buffered.
                if self._source.is_closing:
                    raise ClientClosing
                if self._wants(line):
                    self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            event = decoded(line)
            kind, object_ = event["type"], event["object"]
            if kind == "ERROR":
                raise _error(object_, self._path)
            if kind == "BOOKMARK":
                self._version = str(object_["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"malformed event: {error!r}"[:_MAX_TEXT]) from None
        # Events of unknown types are ignored, as clients must.
        if kind in _CHANGES and self._is_well_formed(object_):
            self._sink.apply(kind, _without_managed_fields(object_))
            # Only now: if the sink raises Unavailable, the same event comes again.
            self._version = object_["metadata"]["resourceVersion"]


def _error(status: JsonObject, path: str) -> Exception:
    if not isinstance(status, dict):
        return Unavailable(f"WATCH {path}: malformed event: an error without status")
    message = str(status.get("message", ""))[:_MAX_TEXT]
    if status.get("code") == 410:
        return Gone(410, str(status.get("reason", "")), message, "WATCH", path)
    return Unavailable(f"WATCH {path}: {message}")


def _without_managed_fields(object_: JsonObject) -> JsonObject:
    """Remove ``managedFields``, half of an object's size; nothing here reads them."""
    object_["metadata"].pop("managedFields", None)
    return object_


def pages(
    source: Source, path: str, query: Mapping[str, str] | None = None
) -> Iterator[JsonObject]:
    """LIST a path in pages; ``query`` selects objects.

    Raises as ``attempt`` does, and Unavailable for a response that is not a list.
    """
    query = {**(query or {}), "limit": str(_PAGE_SIZE)}
    while True:
        page = source.attempt("GET", path, query=query)
        try:
            list_items(page)
            following = str(list_metadata(page).get("continue") or "")
        except ValueError as error:
            raise Unavailable(f"GET {path}: response is not a list: {error}") from None
        yield page
        if not following:
            return
        if following == query.get("continue"):
            raise Unavailable(f"GET {path}: endless list, the same page again")
        query = {**query, "continue": following}


def pods_on(names: Collection[bytes]) -> Wants:
    """Return a filter for events of pods on these nodes; events without a node name pass.

    A process that owns an eighth of the nodes thus decodes an eighth of the events. The filter
    searches the whole event, because a label can contain the same text as the field.
    """

    def wants(line: bytes) -> bool:
        found = _NODE_NAME.findall(line)
        return not found or any(name in names for name in found)

    return wants
