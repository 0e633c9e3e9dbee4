"""Read the ResourceSlices of a node from an API server, to show them to the user.

The kubelet itself does not need slices. Therefore the watch starts when slices are first shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from devicemanager.client.protocol import JsonObject
from devicemanager.client.reflector import Reflector, Source

__all__ = ["ApiSlices"]

_FIRST_LIST = 5.0
"""Seconds that the first caller waits for the API server."""


class ApiSlices:
    """The ResourceSlices of one node, kept current by a watch. Thread-safe."""

    def __init__(self, source: Source, node: str, changed: Callable[[str], None]) -> None:
        """``changed`` is called with a line of text for each change after the slices were first
        listed."""
        self._source = source
        self._query = {"fieldSelector": f"spec.nodeName={node}"}
        self._changed = changed
        self._listed = threading.Event()
        # Guards the fields below.
        self._lock = threading.Lock()
        self._is_started = False
        self._slices: dict[str, JsonObject] = {}

    def known(self) -> tuple[Mapping[str, Any], ...]:
        """Return the slices, sorted by name.

        The result is empty until the API server has responded.
        """
        with self._lock:
            is_first, self._is_started = not self._is_started, True
        # Without the lock, because the thread of the watch needs it to store the first list.
        if is_first:
            Reflector(self._source, "resourceslices", self, query=self._query).start()
            # Only the first call waits, and not forever: a report must not hang with the API
            # server.
            self._listed.wait(_FIRST_LIST)
        with self._lock:
            return tuple(self._slices[name] for name in sorted(self._slices))

    # -- sink of the watch -----------------------------------------------------------

    def begin_list(self) -> None:
        """Do nothing when a LIST request begins. ``replace`` stores all slices in the response."""

    def replace(self, objects: list[JsonObject]) -> None:
        """Replace all stored slices by ``objects``."""
        with self._lock:
            self._slices = {each["metadata"]["name"]: each for each in objects}
        if self._listed.is_set():
            self._changed("ResourceSlices listed again")
        self._listed.set()

    def apply(self, kind: str, object_: JsonObject) -> None:
        """Store the changed slice ``object_``, or remove it if ``kind`` is ``DELETED``.

        ``kind`` is the type of the watch event.
        """
        name = object_["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._slices.pop(name, None)
            else:
                self._slices[name] = object_
        self._changed(f"ResourceSlice {name} {kind.lower()}")
