"""LIST and then WATCH, for ever, as client-go's reflector does (``tools/cache/reflector.go``).

One difference: it lists from the store by pages and not all at once from the server's cache.
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
from devicemanager.cluster.client.listing import pages
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import Warn, cut
from devicemanager.cluster.client.validation import decoded, defect, list_items, list_metadata

__all__ = ["Reflector", "Sink", "Source", "pods_on"]

FIRST_WAIT: Final = 0.8
LONGEST_WAIT: Final = 30.0
CALM: Final = 120.0
"""Seconds of quiet work after which the next failure is a first one again."""
SHORT: Final = 1.0
"""A stream that ends sooner than this many seconds was cut, whatever it brought."""
SILENCE: Final = 150.0
"""Seconds without a byte after which a stream is broken: bookmarks come every minute."""
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_LONGEST_TEXT: Final = 300
_NODE_NAME: Final = re.compile(rb'"nodeName":"([^"]*)"')

Wants = Callable[[bytes], bool]
"""Looks at an event as it came, before it costs decoding; False is none of ours."""


class Sink(Protocol):
    """Who wants to know. Called by one thread."""

    def listing(self) -> None:
        """What ``listed`` will tell is asked for from here on."""

    def listed(self, objects: list[JsonObject]) -> None:
        """The whole truth: what is not there is gone."""

    def seen(self, kind: str, object_: JsonObject) -> None:
        """An object was ``ADDED``, ``MODIFIED`` or ``DELETED``; this is how it is now, or
        how it was last."""


class Source(Protocol):
    """What is asked of the API client."""

    @property
    def is_closing(self) -> bool:
        """Whether to stop."""

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until one is to stop; returns whether that is so."""

    def attempt(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """One request."""

    def stream(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The lines of an answer."""


class Reflector:
    """Follows all objects of one path."""

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
        """``query`` selects; ``wants`` is asked about events, not about what is listed.
        ``is_same`` is asked after trouble: whether the server still has what it had. It may
        raise as requests do."""
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
        """``run`` on a thread of its own."""
        thread = threading.Thread(target=self.run, name=f"watch {self._path}", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Until the source is closing."""
        while not self._source.is_closing:
            began = self._monotonic()
            try:
                if self._version is None:
                    self._version = self._list()
                elif self._failures and not self._is_same():
                    # One that was set up anew counts from the beginning: a watch from a version
                    # that is yet to come would be silent.
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
                self._warn(f"{self._path} cannot be followed, trying again: {error}")
                self._pause(began, error.wait if isinstance(error, Unavailable) else 0.0)
            except Exception as error:  # of somebody who was told: to stop looking helps nobody
                self._warn(f"{self._path}: unexpected {type(error).__name__}: {error} (a bug)")
                self._version = None
                self._pause(began)
            else:
                if self._monotonic() - began < SHORT:
                    self._pause(began)

    def _pause(self, began: float, asked: float = 0.0) -> None:
        """Wait a random part of what doubles with each failure, and as asked at least."""
        self._failures = 0 if self._monotonic() - began > CALM else self._failures + 1
        most = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures, 10))
        self._source.wait(max(asked, random.uniform(most / 2, most)))

    # -- LIST ------------------------------------------------------------------------

    def _list(self) -> str:
        """All objects to the sink; returns the version that the WATCH continues from."""
        self._sink.listing()
        found: list[JsonObject] = []
        version = ""
        for page in pages(self._source, self._path, self._query):
            found += (
                _without_managers(each) for each in list_items(page) if self._can_be_read(each)
            )
            version = str(list_metadata(page).get("resourceVersion", ""))
        self._sink.listed(found)
        return version

    def _can_be_read(self, object_: Any) -> bool:
        """One that cannot is left out, so that it costs nobody else."""
        found = defect(object_)
        if found:
            metadata = object_.get("metadata") if isinstance(object_, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else None
            self._warn(f"{self._path}: {cut(str(name))} is left out: {found}")
        return not found

    # -- WATCH -----------------------------------------------------------------------

    def _watch(self, version: str) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        with self._source.stream(self._path, query, silence=SILENCE) as lines:
            for line in lines:
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
            raise Unavailable(f"an event that is none: {error!r}"[:_LONGEST_TEXT]) from None
        # Of another kind there is nothing that a client understands.
        if kind in _CHANGES and self._can_be_read(object_):
            self._sink.seen(kind, _without_managers(object_))
            # Only now: an event that nobody could take is seen again.
            self._version = object_["metadata"]["resourceVersion"]


def _error(status: JsonObject, path: str) -> Exception:
    if not isinstance(status, dict):
        return Unavailable(f"WATCH {path}: an event that is none: an error without status")
    message = str(status.get("message", ""))[:_LONGEST_TEXT]
    if status.get("code") == 410:
        return Gone(410, str(status.get("reason", "")), message, "WATCH", path)
    return Unavailable(f"WATCH {path}: {message}")


def _without_managers(object_: JsonObject) -> JsonObject:
    """Who set which field is half of an object, and nobody here reads it."""
    object_["metadata"].pop("managedFields", None)
    return object_


def pods_on(names: Collection[bytes]) -> Wants:
    """Wants events of pods on these nodes, and those that name no node, such as bookmarks.

    Looks at every place that might be the field: a label may have its name.
    """

    def wants(line: bytes) -> bool:
        found = _NODE_NAME.findall(line)
        return not found or any(name in names for name in found)

    return wants
