"""Search a kubelet's events and RPC calls for those that a test expects, one after another.

Events and calls are recorded on different threads, and a call is recorded only when it has ended.
Therefore they can arrive in the wrong order. ``place`` defines one order for events and calls.
``Watch`` collects events and calls as they arrive, and returns them in this order. ``Search`` then
looks for one ``Expected`` after another.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.log import CallLog
from devicemanager.events.calls.matching import CallCriteria, CallFilter, Mark
from devicemanager.events.stream import Event, EventKind, EventStream, event_kind
from devicemanager.kubelet.arguments import check_function, check_seconds
from devicemanager.kubelet.pods.records import pod_uid

__all__ = ["Entry", "Expected", "Place", "Search", "Step", "Watch", "is_later", "place"]

Entry = Event | Call
"""An event of a kubelet, or an RPC call that the kubelet has recorded."""

Place = tuple[int, int, int]
"""Position of an event or call among all events and calls, as three numbers that sort in order.

The position of an event is (number of the event, 0, 0). The position of a call is (number of the
latest event when the call ended, 1, number of the call).
"""


def place(entry: Entry) -> Place:
    """Return the position of an event or call among all events and calls of its kubelet."""
    if isinstance(entry, Event):
        return entry.number, 0, 0
    return entry.after_event, 1, entry.number


def is_later(entry: Entry, mark: Mark) -> bool:
    """True if the event happened or the call ended after the moment ``mark``."""
    return entry.number > (mark.event if isinstance(entry, Event) else mark.call)


@attrs.frozen
class Expected:
    """An event or call that a test waits for: its criteria and its timeout.

    Create an ``Expected`` with ``event`` or ``call``.
    """

    within: float
    """Timeout in seconds. For the first expected event or call, it begins when the wait begins. For
    each later one, it begins when the preceding event or call has been found."""
    kinds: frozenset[EventKind] = frozenset()
    resource: str | None = None
    pod: str | None = None
    text: str | re.Pattern[str] | None = None
    where: Callable[[Any], bool] | None = attrs.field(default=None, repr=False)
    criteria: CallFilter | None = None
    """Criteria of a call; None for an event."""

    def __attrs_post_init__(self) -> None:
        check_seconds(self.within)
        if self.where is not None:
            check_function(self.where, "where")

    @classmethod
    def event(
        cls,
        *kinds: EventKind | str,
        resource: str | None = None,
        pod: str | None = None,
        text: str | re.Pattern[str] | None = None,
        where: Callable[[Event], bool] | None = None,
        within: float = 10.0,
    ) -> Self:
        """Expect an event of one of these kinds (default: any kind) within ``within`` seconds.

        The other criteria are optional. The event must have this ``resource`` and ``pod`` (a UID).
        Its message must contain ``text``; if ``text`` is a pattern, the pattern must match the
        message. ``where(event)`` must return True; it can be called more than once for the same
        event.

        Raises RequestError for an unknown kind, and for an invalid ``pod``, ``text``, ``where`` or
        ``within``.
        """
        if pod is not None:
            pod_uid(pod)
        if text is not None and not isinstance(text, (str, re.Pattern)):
            raise RequestError(f"invalid text {text!r}: expected a str or a compiled pattern")
        return cls(within, frozenset(map(event_kind, kinds)), resource, pod, text, where)

    @classmethod
    def call(
        cls,
        resource: str | None = None,
        *,
        where: Callable[[Call], bool] | None = None,
        within: float = 10.0,
        **criteria: Unpack[CallCriteria],
    ) -> Self:
        """Expect a call that meets all given criteria within ``within`` seconds.

        The criteria are ``resource``, ``where`` and the keys of ``CallCriteria``. If ``where`` is
        given, ``where(call)`` must return True.
        """
        return cls(within, where=where, criteria=CallFilter(resource, **criteria))

    @classmethod
    def of(cls, step: Step) -> Expected:
        """Convert a step of ``MockKubelet.expect`` to an ``Expected``.

        The name of an event kind, such as ``admitted``, expects an event; the name of an RPC,
        such as ``Allocate``, expects a call. Raises RequestError for any other name.
        """
        if isinstance(step, Expected):
            return step
        from devicemanager.events.calls.rendering import RPCS

        if step in RPCS:
            return cls.call(rpc=step)
        # A list, because Python 3.11 raises TypeError for ``in`` with a str and an enumeration.
        if step in list(EventKind):
            return cls.event(step)
        kinds = ", ".join(kind.value for kind in EventKind)
        raise RequestError(
            f"unknown event or RPC {step!r}: use one of {kinds}, or {', '.join(RPCS)}"
        )

    def matches(self, entry: Entry) -> bool:
        """True if the event or call meets all criteria, including ``where``."""
        # ``where`` comes last: it is the user's code, and must see only entries of its kind.
        if isinstance(entry, Call):
            fits = self.criteria is not None and bool(self.criteria.matching([entry]))
        else:
            fits = self.criteria is None and self._matches_event(entry)
        return fits and (self.where is None or self.where(entry))

    def matches_without_where(self, entry: Entry) -> bool:
        """True if ``where`` is None and the event or call meets all criteria."""
        return self.where is None and self.matches(entry)

    def _matches_event(self, event: Event) -> bool:
        if self.text is None:
            has_text = True
        elif isinstance(self.text, str):
            has_text = self.text in event.message
        else:
            has_text = self.text.search(event.message) is not None
        return (
            has_text
            and (not self.kinds or event.kind in self.kinds)
            and (self.resource is None or event.resource == self.resource)
            and (self.pod is None or event.pod == self.pod)
        )

    def __str__(self) -> str:
        if self.criteria is not None:
            return f"the {self.criteria}"
        kinds = " or ".join(kind.value for kind in EventKind if kind in self.kinds)
        parts = [f"the event {kinds or 'of any kind'}"]
        parts += [f"of {self.resource}"] if self.resource else []
        parts += [f"of pod {self.pod}"] if self.pod else []
        if self.text is not None:
            text = self.text if isinstance(self.text, str) else self.text.pattern
            parts.append(f"with {text!r}")
        return " ".join(parts) + (" where the condition holds" if self.where is not None else "")


Step = Expected | EventKind | str
"""A step of ``MockKubelet.expect``: an ``Expected``, an event kind, or the name of an RPC."""


class Watch:
    """Collector of all events and calls after the moment ``since``; a context manager.

    The collector starts with the stored events and calls, and adds each new event and call.
    ``wake`` is called for every new event and call, on the thread that published it.
    """

    def __init__(
        self, events: EventStream, calls: CallLog, since: Mark, wake: Callable[[], None]
    ) -> None:
        self._events = events
        self._calls = calls
        self._since = since
        self._wake = wake
        self._arrived: deque[Entry] = deque()  # appended to by any thread
        self._entries: dict[Place, Entry] = {}
        self._unsubscribes: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        # Subscribe before reading the stored entries: nothing in between is lost, and an entry
        # that arrives twice has the same place.
        self._unsubscribes = [
            self._events.subscribe(self._take),
            self._calls.subscribe(self._take),
        ]
        self._arrived.extend((*self._events.recent(), *self._calls.all()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for unsubscribe in self._unsubscribes:
            unsubscribe()

    def _take(self, entry: Entry) -> None:
        # This runs on the publisher's thread, so it only stores the entry. The waiting thread
        # does the rest.
        self._arrived.append(entry)
        self._wake()

    def entries(self) -> Sequence[tuple[Place, Entry]]:
        """Return all events and calls collected so far, each with its ``Place``, sorted by place.

        Several threads record events and calls. Therefore a later result can have new ones
        anywhere, not only at the end.
        """
        with contextlib.suppress(IndexError):
            while True:
                entry = self._arrived.popleft()
                # By place, since an entry that was published while the watch was entered arrives
                # twice.
                if is_later(entry, self._since):
                    self._entries[place(entry)] = entry
        return sorted(self._entries.items())


class Search:
    """Search for expected events and calls, in order, among those that a ``Watch`` collects."""

    def __init__(self, steps: Sequence[Expected], watch: Watch) -> None:
        self._steps = steps
        self._watch = watch
        self._places: list[Place] = []
        self.found: list[Entry] = []
        self._start_timeout()

    def _start_timeout(self) -> None:
        if self.current is not None:
            self._limit = time.monotonic() + self.current.within

    @property
    def current(self) -> Expected | None:
        """The expected event or call to find next; None if all are found."""
        number = len(self.found)
        return self._steps[number] if number < len(self._steps) else None

    def advance(self) -> float | None:
        """Look for the missing events and calls, in order, among those collected so far.

        Returns None if all are found. Otherwise returns the remaining seconds of the timeout of
        ``current``, the first missing event or call.
        """
        while (wanted := self.current) is not None:
            # Search from the beginning: an entry with an earlier place may have arrived late.
            for place, entry in self._watch.entries():
                # Strictly later, so that one event or call does not count for two steps.
                if (not self._places or place > self._places[-1]) and wanted.matches(entry):
                    break
            else:
                return self._limit - time.monotonic()
            self._places.append(place)
            self.found.append(entry)
            self._start_timeout()
        return None
