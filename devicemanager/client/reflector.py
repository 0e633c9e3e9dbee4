"""LIST, then WATCH, like client-go's reflector (``tools/cache/reflector.go``, v0.32).

How a watch ends, and what the reflector does then:
* Normally, after 5 to 10 minutes: watch again from the last resource version.
* 410 Gone, as a response or as an ERROR event: relist.
* A broken connection or another error: back off. Then relist if the server has lost its data
  (``is_same`` returns False); otherwise watch again.
* An exception of the sink, which is a bug: log it and relist, because the sink may have missed an
  event.

One difference from client-go: the LIST reads pages from etcd, and client-go reads the whole list
from the server's watch cache. With pages, client and server store the text of one page at a time,
not of a list of thousands of pods.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from devicemanager.client.errors import ApiError, ClientClosing, Gone, Unavailable
from devicemanager.client.protocol import JsonObject
from devicemanager.client.rate_limited_warning import Warn, truncate
from devicemanager.client.validation import decoded, defect, list_items, list_metadata

__all__ = ["Reflector", "Sink", "Source", "pages", "pods_on"]

# The backoff of client-go's reflector: 0.8 to 30 s, reset after 2 minutes.
FIRST_WAIT: Final = 0.8
LONGEST_WAIT: Final = 30.0
CALM: Final = 120.0
"""Seconds without a failure after which the backoff starts again with its shortest wait."""
SHORT: Final = 1.0
"""A stream that ends within this many seconds counts as a failure, even if it delivered
events."""
SILENCE: Final = 150.0
"""Seconds without a byte after which a stream counts as broken. Bookmarks come every minute."""
# As in client-go's pager (``defaultPageSize``).
_PAGE_SIZE: Final = 500
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_MAX_TEXT: Final = 300
# Searching the bytes is much cheaper than decoding the event.
_NODE_NAME: Final = re.compile(rb'"nodeName":"([^"]*)"')

Wants = Callable[[bytes], bool]
"""Filter for encoded events. If it returns False, the event is dropped without decoding."""


class Sink(Protocol):
    """Receiver of the objects and events of a reflector. One thread calls the methods."""

    def begin_list(self) -> None:
        """Handle the start of a LIST. Objects that are created later can be missing from the
        list."""

    def replace(self, objects: list[JsonObject]) -> None:
        """Handle a full list of objects. Objects that are not in the list were deleted."""

    def apply(self, kind: str, object_: JsonObject) -> None:
        """Handle an object that was ``ADDED``, ``MODIFIED`` or ``DELETED``.

        ``object_`` is the object's current state, or its last state before it was deleted.
        """


class Source(Protocol):
    """API client with the members that a reflector uses."""

    @property
    def is_closing(self) -> bool:
        """True if the reflector must stop."""

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; return True if the reflector must stop."""

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Send a request once, without retries, and return the object in the response."""

    def stream(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a stream and return its lines; raise Unavailable after ``silence`` seconds without
        a byte."""


class Reflector:
    """Loop of LIST and WATCH that sends all objects of one API path to a sink."""

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
        """Create a reflector; ``run`` or ``start`` starts it.

        ``query`` selects objects. ``wants`` filters events, but not lists. ``is_same`` is called
        after a failure, and returns False if the server has lost its data. ``is_same`` may raise
        the errors of a request.
        """
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
        self._has_failed = False

    def start(self) -> threading.Thread:
        """Call ``run`` on a new thread, and return the thread."""
        thread = threading.Thread(target=self.run, name=f"watch {self._path}", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Repeat LIST and WATCH until the source is closing."""
        while not self._source.is_closing:
            began = self._monotonic()
            try:
                if self._version is None:
                    self._version = self._list()
                elif self._has_failed and not self._is_same():
                    # A server on a new etcd counts versions from 1. It would accept a watch from
                    # our version, which is higher, and send no events. The version is cleared
                    # first: if the LIST fails, the next attempt must be a LIST again.
                    self._version = None
                    self._version = self._list()
                self._watch(self._version)
            except ClientClosing:
                return
            except Gone:
                self._version = None
                self._pause(began)
            except (Unavailable, ApiError) as error:
                # Closing breaks the stream, and the user must not see that as an error.
                if self._source.is_closing:
                    return
                self._warn(f"cannot watch {self._path}, retrying: {error}")
                self._pause(began, error.wait if isinstance(error, Unavailable) else 0.0)
            except Exception as error:
                self._warn(f"{self._path}: unexpected {type(error).__name__}: {error} (a bug)")
                self._version = None
                self._pause(began)
            else:
                # A server or proxy that ends streams immediately must not cause a busy loop.
                if self._monotonic() - began < SHORT:
                    self._pause(began)

    def _pause(self, began: float, retry_after: float = 0.0) -> None:
        """Wait with exponential backoff and jitter, for at least ``retry_after`` seconds.

        ``began`` is the time at which the failed attempt started.
        """
        self._has_failed = True
        self._failures = 0 if self._monotonic() - began > CALM else self._failures + 1
        most = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures, 10))
        self._source.wait(max(retry_after, random.uniform(most / 2, most)))

    # -- LIST ------------------------------------------------------------------------

    def _list(self) -> str:
        """LIST all objects, send them to the sink, and return the resource version of the list."""
        self._sink.begin_list()
        found: list[JsonObject] = []
        version = ""
        for page in pages(self._source, self._path, self._query):
            found += (
                _without_managed_fields(each)
                for each in list_items(page)
                if self._is_well_formed(each)
            )
            # All pages belong to one snapshot and have its version.
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
                # Closing ends the stream, but some events can still be buffered.
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
        # Events of unknown types are ignored, as the Kubernetes API requires.
        if kind in _CHANGES and self._is_well_formed(object_):
            self._sink.apply(kind, _without_managed_fields(object_))
            # Set after the call: if the sink raises Unavailable, the event is delivered again.
            self._version = object_["metadata"]["resourceVersion"]


def _error(status: JsonObject, path: str) -> Exception:
    if not isinstance(status, dict):
        return Unavailable(f"WATCH {path}: malformed event: type ERROR without a Status object")
    message = str(status.get("message", ""))[:_MAX_TEXT]
    if status.get("code") == 410:
        return Gone(410, str(status.get("reason", "")), message, "WATCH", path)
    return Unavailable(f"WATCH {path}: {message}")


def _without_managed_fields(object_: JsonObject) -> JsonObject:
    """Remove ``metadata.managedFields``, which is not used and takes half of an object's size."""
    object_["metadata"].pop("managedFields", None)
    return object_


def pages(
    source: Source, path: str, query: Mapping[str, str] | None = None
) -> Iterator[JsonObject]:
    """LIST an API path and iterate over the pages; ``query`` selects objects.

    Raises ApiError for an error response. Raises Unavailable if the server cannot be reached, or if
    a response is not a list.
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
            raise Unavailable(f"GET {path}: endless list: the server repeats a page")
        query = {**query, "continue": following}


def pods_on(names: Collection[bytes]) -> Wants:
    """Return a filter that passes events of pods on these nodes, and events without a node name.

    With the filter, a process that has an eighth of the nodes decodes an eighth of the events. An
    event can contain the text of the field ``nodeName`` several times, in a label for example. The
    filter passes an event if any of the values is one of ``names``.
    """

    def wants(line: bytes) -> bool:
        found = _NODE_NAME.findall(line)
        return not found or any(name in names for name in found)

    return wants
