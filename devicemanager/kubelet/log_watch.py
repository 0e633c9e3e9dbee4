"""What happens while somebody waits: events and calls, in one order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from devicemanager.events.calls.call import Call
from devicemanager.events.calls.log import CallLog
from devicemanager.events.calls.matching import Mark
from devicemanager.events.stream import Event, EventStream

__all__ = ["Entry", "Watch", "is_later", "place"]

Entry = Event | Call

Place = tuple[int, int, int]
"""Where an entry stands among all others: by the event it is or comes after, then calls by
their number."""


def place(entry: Entry) -> Place:
    """An entry's place among all events and calls of its kubelet."""
    if isinstance(entry, Event):
        return entry.number, 0, 0
    return entry.after_event, 1, entry.number


def is_later(entry: Entry, mark: Mark) -> bool:
    """Whether an entry comes after the mark."""
    return entry.number > (mark.event if isinstance(entry, Event) else mark.call)


class Watch:
    """Collects all that happens after ``since``, and calls ``wake`` after each of it, on the
    thread where it happens. A context manager.

    It misses nothing that happens while it is entered, and of what was before it knows what
    is still kept.
    """

    def __init__(
        self, events: EventStream, calls: CallLog, since: Mark, wake: Callable[[], None]
    ) -> None:
        self._events = events
        self._calls = calls
        self._since = since
        self._wake = wake
        self._arrived: deque[Entry] = deque()  # any thread appends to it
        self._entries: dict[Place, Entry] = {}
        self._ends: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._ends = [self._events.subscribe(self._take), self._calls.subscribe(self._take)]
        self._arrived.extend((*self._events.recent(), *self._calls.all()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for end in self._ends:
            end()

    def _take(self, entry: Entry) -> None:
        self._arrived.append(entry)
        self._wake()

    def entries(self) -> Sequence[tuple[Place, Entry]]:
        """All so far, in their order. What happens on other threads may still turn up between
        two that are there."""
        with contextlib.suppress(IndexError):
            while True:
                entry = self._arrived.popleft()
                if is_later(entry, self._since):
                    self._entries[place(entry)] = entry
        return sorted(self._entries.items())
