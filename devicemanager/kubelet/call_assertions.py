"""What somebody waits for: events and calls, each with its own limit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.events.calls.call import Call
from devicemanager.events.stream import Event, EventKind, event_kind
from devicemanager.kubelet.arguments import check_function, check_seconds
from devicemanager.kubelet.log_watch import Entry, Place, Watch
from devicemanager.kubelet.pods.records import pod_uid

if TYPE_CHECKING:
    from devicemanager.events.calls.matching import CallFilter

__all__ = ["Expected", "Search"]


@attrs.frozen
class Expected:
    """An event or a call that is to happen; made by ``event`` and ``call``."""

    within: float
    """Seconds to wait for it, once what comes before it has happened."""
    kinds: frozenset[EventKind] = frozenset()
    resource: str | None = None
    pod: str | None = None
    text: str | re.Pattern[str] | None = None
    where: Callable[[Any], bool] | None = attrs.field(default=None, repr=False)
    criteria: CallFilter | None = None
    """Of a call; None for an event."""

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
        """An event of one of these kinds (none given: of any), of this resource and pod (its
        UID), whose message contains ``text`` or matches the pattern, and of which ``where``
        holds. ``where`` may be called more than once for an event.

        Raises RequestError for a kind that there is not, and for what is no UID, text, function
        or time."""
        if pod is not None:
            pod_uid(pod)
        if text is not None and not isinstance(text, (str, re.Pattern)):
            raise RequestError(f"a text is a str or a compiled pattern: not {text!r}")
        return cls(within, frozenset(map(event_kind, kinds)), resource, pod, text, where)

    @classmethod
    def call(
        cls,
        resource: str | None = None,
        *,
        rpc: str | None = None,
        plugin: str | None = None,
        device_ids: Collection[str] | None = None,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        code: str | None = None,
        where: Callable[[Call], bool] | None = None,
        within: float = 10.0,
    ) -> Self:
        """A call that meets these criteria (see ``CallLog``), and of which ``where`` holds."""
        from devicemanager.events.calls.matching import CallFilter

        criteria = CallFilter(resource, rpc, plugin, device_ids, request, response, code)
        return cls(within, where=where, criteria=criteria)

    @classmethod
    def of(cls, what: Expected | EventKind | str) -> Expected:
        """An event by the name of its kind, such as ``admitted``, or a call by that of its
        RPC, such as ``Allocate``. Raises RequestError for another name."""
        if isinstance(what, Expected):
            return what
        from devicemanager.events.calls.rendering import RPCS

        if what in RPCS:
            return cls.call(rpc=what)
        if what in list(EventKind):
            return cls.event(what)
        kinds = ", ".join(each.value for each in EventKind)
        raise RequestError(
            f"there is no event and no RPC {what!r}: choose from {kinds}, or {', '.join(RPCS)}"
        )

    def matches(self, entry: Entry) -> bool:
        """Whether this is it."""
        if isinstance(entry, Call):
            right = self.criteria is not None and bool(self.criteria.matching([entry]))
        else:
            right = self.criteria is None and self._is_event(entry)
        return right and (self.where is None or self.where(entry))

    def is_like(self, entry: Entry) -> bool:
        """Whether it would be this, as far as that is known without asking ``where``."""
        return self.where is None and self.matches(entry)

    def _is_event(self, event: Event) -> bool:
        if self.text is None:
            says = True
        elif isinstance(self.text, str):
            says = self.text in event.message
        else:
            says = self.text.search(event.message) is not None
        return (
            says
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


class Search:
    """Looks for events and calls in this order in what a watch sees."""

    def __init__(self, steps: Sequence[Expected], watch: Watch) -> None:
        self._steps = steps
        self._watch = watch
        self._places: list[Place] = []
        self.found: list[Entry] = []
        self._start()

    def _start(self) -> None:
        if self.current is not None:
            self._limit = time.monotonic() + self.current.within

    @property
    def current(self) -> Expected | None:
        """What is looked for now; None if all is found."""
        number = len(self.found)
        return self._steps[number] if number < len(self._steps) else None

    def look(self) -> float | None:
        """None if all is found, else how many seconds are left for ``current``."""
        while (wanted := self.current) is not None:
            for place, entry in self._watch.entries():
                if (not self._places or place > self._places[-1]) and wanted.matches(entry):
                    break
            else:
                return self._limit - time.monotonic()
            self._places.append(place)
            self.found.append(entry)
            self._start()
        return None
