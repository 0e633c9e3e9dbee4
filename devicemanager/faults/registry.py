"""The faults that are set, and which of them fire at an occasion.

A decision depends on the seed and on counters alone: how many occasions a fault has had, and
of a fault with a probability, how many the resource has had. So the same occasions in the
same order have the same outcome, however long each takes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.injection_point import NOBODY, FaultContext, InjectionPoint
from devicemanager.io.clock import Clock, SystemClock

if TYPE_CHECKING:
    from devicemanager.faults.fault import Fault
    from devicemanager.faults.holds import Hold
    from devicemanager.faults.states import Entry, FaultState

__all__ = ["Actions", "FaultRegistry", "Fired", "as_fault", "named"]

Source = Any
"""A fault as it may be given: a ``Fault``, a line of text, a mapping."""


class Actions(Protocol):
    """Who executes actions."""

    def prepare(self, fault: Fault) -> object:
        """A fault is about to be set: what it will need when it fires. None: nothing."""

    def execute(self, fault: Fault, occasion: FaultContext) -> None:
        """Execute on the calling thread. Raises what that raises."""

    def start(self, fault: Fault, occasion: FaultContext) -> None:
        """Execute on another thread; what that raises is reported."""


class _NoActions:
    def prepare(self, fault: Fault) -> object:
        return None

    def execute(self, fault: Fault, occasion: FaultContext) -> None:
        raise RequestError(f"there is no kubelet here for {fault.kind.name}")

    def start(self, fault: Fault, occasion: FaultContext) -> None:
        pass


class FaultRegistry:
    """The faults of one kubelet; they outlive its restarts. Any thread may call it.

    ``armed`` is what every point looks at first: nothing else happens there while it is
    empty.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        events: EventStream | None = None,
        actions: Actions | None = None,
        seed: int = 0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._events = events or EventStream(self._clock)
        self._actions: Actions = actions or _NoActions()
        self.seed = seed
        """Decides where a fault has a probability and no seed of its own."""
        # Guards everything below, and every entry.
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._latest = 0
        self._is_stopping = False
        self.armed: Mapping[InjectionPoint, tuple[Entry, ...]] = {}
        """The faults by the point where they are asked for. Read it without a lock."""

    # -- setting ---------------------------------------------------------------------

    def set(self, fault: Source, /, **options: Any) -> FaultState:
        """Set a fault: by its kind and options, ``set("reject-register", times=2)``; as one
        line, ``set("reject-register:times=2")``; as a mapping or a ``Fault``. It counts from
        now on. An action without ``at`` is executed before this returns; what of it comes
        later (``away``, a gap) is done by the kubelet's clock.

        Raises FaultError, which names the choices, for a fault that cannot be, and what an
        action raises.
        """
        from devicemanager.faults.states import Entry

        parsed = as_fault(fault, options)
        with self._lock:
            self._latest += 1
            entry = Entry(self._latest, parsed)
        if parsed.is_immediate:
            return self._execute(entry)
        entry.prepared = self._actions.prepare(parsed)
        with self._lock:
            self._entries[entry.id] = entry
            self._rearm()
            return entry.state()

    def _execute(self, entry: Entry) -> FaultState:
        """An action that is executed at once is an event, and not kept."""
        entry.seen = entry.fired = 1
        occasion = FaultContext(entry.fault.resource, entry.fault.plugin)
        self._publish(entry, occasion)
        self._actions.execute(entry.fault, occasion)
        return entry.state()

    def list(self) -> tuple[FaultState, ...]:
        """Every fault that was set and not cleared, spent ones included, in the order in which
        they were set; without actions that were executed at once."""
        with self._lock:
            return tuple(entry.state() for entry in self._entries.values())

    def clear(self, which: int | str | None = None) -> int:
        """Take back a fault by its id, every fault of a kind, or all; returns how many.
        Whoever a fault holds up goes on at once.

        Raises RequestError for an id or a kind of which none is set.
        """
        with self._lock:
            gone = [
                entry
                for entry in self._entries.values()
                if which in (None, entry.id, entry.fault.kind.name)
            ]
            for entry in gone:
                del self._entries[entry.id]
            self._rearm()
            holds = [hold for entry in gone for hold in entry.holds]
        for hold in holds:
            hold.release()
        if which is not None and not gone:
            raise RequestError(f"no fault {which!r} is set: {self._choices()}")
        return len(gone)

    def _choices(self) -> str:
        told = [f"{state.id} ({state.fault.kind.name})" for state in self.list()]
        return f"choose from {', '.join(told)}" if told else "there is none"

    def _rearm(self) -> None:
        """With the lock held. A new mapping: readers have none."""
        armed: dict[InjectionPoint, tuple[Entry, ...]] = {}
        for entry in self._entries.values():
            point = entry.fault.point
            if point is not None and not entry.state().is_spent:
                armed[point] = (*armed.get(point, ()), entry)
        self.armed = armed

    # -- at a point ------------------------------------------------------------------

    def at(
        self, point: InjectionPoint, occasion: FaultContext = NOBODY, *, start: bool = True
    ) -> tuple[Fired, ...]:
        """What fires now, in the order in which it was set. Each is an event. Actions are
        started on a thread of their own; without ``start`` the caller does that."""
        fired = []
        with self._lock:
            entries = self.armed.get(point, ())
            for entry in entries:
                if entry.concerns(occasion) and entry.fires(occasion, self.seed):
                    fired.append(entry)
            if fired:
                self._rearm()
        found = tuple(Fired(self, entry, occasion) for entry in fired)
        for each, entry in zip(found, fired, strict=True):
            self._publish(entry, occasion, point)
            if start:
                each.start()
        return found

    def _publish(
        self, entry: Entry, occasion: FaultContext, point: InjectionPoint | None = None
    ) -> None:
        fault = entry.fault
        subject = str(occasion)
        self._events.publish(
            EventKind.FAULT,
            f"injected: {fault}" + (f" at {subject}" if subject else ""),
            resource=occasion.resource,
            fault=entry.id,
            fault_kind=fault.kind.name,
            point=None if point is None else point.value,
            plugin=occasion.plugin,
            rpc=occasion.rpc,
        )

    # -- holding up ------------------------------------------------------------------

    def _hold(self, entry: Entry, seconds: float | None) -> Hold:
        from devicemanager.faults.holds import Hold

        def ended(hold: Hold) -> None:
            with self._lock:
                entry.holds.discard(hold)

        hold = Hold(ended)
        # Before it is counted: whoever sees it may turn the clock.
        hold.start(self._clock, seconds)
        with self._lock:
            is_over = self._is_stopping or entry.id not in self._entries
            if not (is_over or hold.is_over):
                entry.holds.add(hold)
        if is_over:
            hold.release()
        return hold

    def stopping(self) -> None:
        """The kubelet's process stops: nobody is held up any more, until ``starting``."""
        with self._lock:
            self._is_stopping = True
            holds = [hold for entry in self._entries.values() for hold in entry.holds]
        for hold in holds:
            hold.release()

    def starting(self) -> None:
        """A process of the kubelet starts."""
        self._is_stopping = False


class Fired:
    """A fault that fires now."""

    def __init__(self, registry: FaultRegistry, entry: Entry, occasion: FaultContext) -> None:
        self._registry = registry
        self._entry = entry
        self._occasion = occasion
        self.kind = entry.fault.kind
        self.id = entry.id

    def __getitem__(self, option: str) -> Any:
        """The value of one of the kind's options."""
        return self._entry.fault.options[option]

    def __str__(self) -> str:
        return f"fault {self.id}, {self.kind.name}"

    @property
    def prepared(self) -> Any:
        """What was noted for it when the fault was set."""
        return self._entry.prepared

    def start(self) -> None:
        """Start an action on a thread of its own; of another kind, nothing."""
        if self.kind.is_action:
            self._registry._actions.start(self._entry.fault, self._occasion)

    def hold(self) -> Hold:
        """Somebody waits for the fault's ``seconds``; without them until it is cleared. Nobody
        is held up by a fault that was cleared, or while the kubelet stops."""
        return self._registry._hold(self._entry, self._entry.fault.options.get("seconds"))


def named(fired: Iterable[Fired], *kinds: str) -> Fired | None:
    """The first of these kinds among them."""
    return next((each for each in fired if each.kind.name in kinds), None)


def as_fault(fault: Source, options: Mapping[str, Any]) -> Fault:
    """The fault that was given. Raises FaultError."""
    from devicemanager.faults.fault import Fault, FaultError

    if isinstance(fault, Fault):
        found = fault
    elif options and isinstance(fault, str):
        return Fault.of(fault, **options)
    else:
        found = Fault.from_data(fault)
    if options:
        raise FaultError(f"options belong to a kind, not to {found}")
    return found
