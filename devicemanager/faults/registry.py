"""The faults that are set, and which of them fire at an injection point.

A fault *matches* when the kubelet reaches the fault's injection point for a plugin and a call that
the fault's options select. Whether the fault then fires depends only on the seed and on counters:
how often the fault has matched and fired so far. For a fault with a probability, the matches of
each resource are counted separately. The same sequence of matches therefore has the same outcome,
regardless of timing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.injection_point import NO_CONTEXT, Effect, FaultContext, InjectionPoint
from devicemanager.io.clock import Clock, SystemClock

if TYPE_CHECKING:
    from devicemanager.faults.fault import Fault
    from devicemanager.faults.states import Entry, FaultState, Hold

__all__ = ["Actions", "FaultRegistry", "FaultSource", "Fired", "as_fault", "first"]

FaultSource = Any
"""A fault to set: a ``Fault``, a line of text, or a mapping."""


class Actions(Protocol):
    """Executor of actions: faults that act on the kubelet as a whole, such as a restart."""

    def prepare(self, fault: Fault) -> object:
        """Collect the data that a fault needs when it fires; called when the fault is set."""

    def execute(self, fault: Fault, context: FaultContext) -> None:
        """Execute an action on the calling thread. Errors of the action are raised."""

    def start(self, fault: Fault, context: FaultContext) -> None:
        """Execute an action on another thread. Errors of the action are reported, not raised."""


class _NoActions:
    def prepare(self, fault: Fault) -> object:
        return None

    def execute(self, fault: Fault, context: FaultContext) -> None:
        raise RequestError(f"fault {fault.kind.name} needs a mock kubelet")

    def start(self, fault: Fault, context: FaultContext) -> None:
        pass


class FaultRegistry:
    """The faults that are set in one kubelet. A restart does not clear them. Thread-safe.

    Every injection point reads ``armed`` first and does nothing else if it is empty, so an
    injection point without faults costs one attribute lookup.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        events: EventStream | None = None,
        actions: Actions | None = None,
        seed: int = 0,
    ) -> None:
        """Internal: create a registry without faults. Each kubelet creates its own registry."""
        self._clock = clock or SystemClock()
        self._events = events or EventStream(self._clock)
        self._actions: Actions = actions or _NoActions()
        self.seed = seed
        """Seed for faults that have a probability, but no option ``seed``."""
        # Guards everything below, and every entry.
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._latest = 0
        self._is_stopping = False
        self.armed: Mapping[InjectionPoint, tuple[Entry, ...]] = {}
        """Internal: mapping from injection points to the faults that can still fire there.
        Injection points read the mapping without the lock."""

    # -- setting ---------------------------------------------------------------------

    def set(self, fault: FaultSource, /, **options: Any) -> FaultState:
        """Set a fault, given as kind and options, as one line, as a mapping or as a ``Fault``.

        ``set("reject-register", times=2)`` is the same as ``set("reject-register:times=2")``.
        The fault's counters begin at 0. An action without ``at`` is executed before this method
        returns. Two kinds also act later, by the kubelet's clock: ``restart-twice`` restarts the
        kubelet a second time, and ``away`` starts the stopped kubelet again.

        Raises FaultError for an invalid fault; the error names the valid choices. If an action is
        executed and fails, its error is raised.
        """
        # Not at the top: a kubelet without faults does not load the table of kinds.
        from devicemanager.faults.states import Entry

        parsed = as_fault(fault, options)
        # Only the ID is taken under the lock: both steps below read the kubelet's state.
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
        """Publish an action as an event and execute it, without storing the fault."""
        entry.seen = entry.fired = 1
        context = FaultContext(entry.fault.resource, entry.fault.plugin)
        self._publish(entry, context)
        self._actions.execute(entry.fault, context)
        return entry.state()

    def list(self) -> tuple[FaultState, ...]:
        """Return all faults that were set and not cleared, in the order in which they were set.

        The list includes faults that cannot fire any more. It omits actions without ``at``,
        because ``set`` has already executed them.
        """
        with self._lock:
            return tuple(entry.state() for entry in self._entries.values())

    def clear(self, which: int | str | None = None) -> int:
        """Clear a fault by its ID, all faults of a kind, or all faults; return their number.

        Calls that a cleared fault delays resume immediately. Raises RequestError if no fault of
        the given ID or kind is set.
        """
        with self._lock:
            cleared = [
                entry
                for entry in self._entries.values()
                if which in (None, entry.id, entry.fault.kind.name)
            ]
            for entry in cleared:
                del self._entries[entry.id]
            self._rearm()
            holds = [hold for entry in cleared for hold in entry.holds]
        # Outside the lock: releasing a delay runs the callbacks of the delayed calls.
        for hold in holds:
            hold.release()
        if which is not None and not cleared:
            raise RequestError(f"unknown fault {which!r}: {self._choices()}")
        return len(cleared)

    def _choices(self) -> str:
        names = [f"{state.id} ({state.fault.kind.name})" for state in self.list()]
        return f"use one of {', '.join(names)}" if names else "no faults are set"

    def _rearm(self) -> None:
        """Replace the mapping ``armed`` by a current one. Must be called with the lock held.

        ``armed`` is read without the lock, so the mapping is never changed in place.
        """
        armed: dict[InjectionPoint, tuple[Entry, ...]] = {}
        for entry in self._entries.values():
            point = entry.fault.point
            if point is not None and not entry.state().is_spent:
                armed[point] = (*armed.get(point, ()), entry)
        self.armed = armed

    # -- at an injection point -----------------------------------------------------------

    def at(
        self, point: InjectionPoint, context: FaultContext = NO_CONTEXT, *, start: bool = True
    ) -> tuple[Fired, ...]:
        """Internal: return the faults that fire at an injection point now.

        The faults are in the order in which they were set. ``context`` has the plugin and the call
        for which the kubelet has reached the injection point. This method publishes one event for
        each fault that fires. If ``start`` is true, it also starts those faults that are actions,
        on another thread. Otherwise, the caller must start them with ``Fired.start``.
        """
        firing = []
        with self._lock:
            # Read again under the lock: the caller has read ``armed`` without it.
            entries = self.armed.get(point, ())
            for entry in entries:
                if entry.concerns(context) and entry.fires(context, self.seed):
                    firing.append(entry)
            # A fault that has fired for the last time leaves ``armed``, which callers read first.
            if firing:
                self._rearm()
        # Outside the lock: event callbacks can set and clear faults.
        fired = tuple(Fired(self, entry, context) for entry in firing)
        for each, entry in zip(fired, firing, strict=True):
            self._publish(entry, context, point)
            if start:
                each.start()
        return fired

    def _publish(
        self, entry: Entry, context: FaultContext, point: InjectionPoint | None = None
    ) -> None:
        fault = entry.fault
        subject = str(context)
        self._events.publish(
            EventKind.FAULT,
            f"injected: {fault}" + (f" at {subject}" if subject else ""),
            resource=context.resource,
            fault=entry.id,
            fault_kind=fault.kind.name,
            point=None if point is None else point.value,
            plugin=context.plugin,
            rpc=context.rpc,
        )

    # -- delays ------------------------------------------------------------------------

    def _hold(self, entry: Entry, seconds: float | None) -> Hold:
        from devicemanager.faults.states import Hold

        def ended(hold: Hold) -> None:
            with self._lock:
                entry.holds.discard(hold)

        hold = Hold(ended)
        # Started before it is counted: a test can advance the clock as soon as it sees the count.
        hold.start(self._clock, seconds)
        with self._lock:
            # Since the fault fired, it may have been cleared, or the kubelet may be stopping.
            is_over = self._is_stopping or entry.id not in self._entries
            if not (is_over or hold.is_over):
                entry.holds.add(hold)
        if is_over:
            hold.release()
        return hold

    def stopping(self) -> None:
        """Internal: end all delays, and allow no new delay until ``starting`` is called.

        Called when the kubelet stops.
        """
        with self._lock:
            self._is_stopping = True
            holds = [hold for entry in self._entries.values() for hold in entry.holds]
        # Outside the lock, for the same reason as in ``clear``.
        for hold in holds:
            hold.release()

    def starting(self) -> None:
        """Internal: allow delays again after ``stopping``. Called when the kubelet starts."""
        self._is_stopping = False


class Fired:
    """A fault that fires now. The code at its injection point must carry it out."""

    def __init__(self, registry: FaultRegistry, entry: Entry, context: FaultContext) -> None:
        self._registry = registry
        self._entry = entry
        self._context = context
        self.kind = entry.fault.kind
        self.id = entry.id

    def __getitem__(self, option: str) -> Any:
        """Return the value of an option of the fault by its name."""
        return self._entry.fault.options[option]

    def __str__(self) -> str:
        return f"fault {self.id}, {self.kind.name}"

    @property
    def effect(self) -> Effect:
        """The effect that the code at the injection point carries out."""
        return self.kind.effect

    @property
    def prepared(self) -> Any:
        """The data that ``Actions.prepare`` collected when the fault was set."""
        return self._entry.prepared

    def start(self) -> None:
        """Start the fault on another thread if it is an action; otherwise do nothing."""
        if self.kind.is_action:
            self._registry._actions.start(self._entry.fault, self._context)

    def hold(self) -> Hold:
        """Begin a delay and return it. Its ``wait`` blocks until the delay ends.

        The delay ends after the number of seconds in the fault's option ``seconds``, if the fault
        has this option. It also ends when the fault is cleared or the kubelet stops.
        """
        return self._registry._hold(self._entry, self._entry.fault.options.get("seconds"))


def first(fired: Iterable[Fired], *effects: Effect) -> Fired | None:
    """Return the first fault in ``fired`` that has one of the given effects; None if no fault has
    one of them."""
    return next((fault for fault in fired if fault.effect in effects), None)


def as_fault(fault: FaultSource, options: Mapping[str, Any]) -> Fault:
    """Convert ``fault`` to a ``Fault``.

    ``fault`` is a ``Fault``, a line of text, a mapping, or the name of a kind. With the name of a
    kind, ``options`` are the options of the fault. Raises FaultError for an invalid fault, and for
    options together with any other form.
    """
    # Not at the top: a kubelet without faults does not load the table of kinds.
    from devicemanager.faults.fault import Fault, FaultError

    if isinstance(fault, Fault):
        converted = fault
    elif options and isinstance(fault, str):
        return Fault.of(fault, **options)
    else:
        converted = Fault.from_data(fault)
    if options:
        raise FaultError(
            f"cannot add options to the fault {converted}: pass its kind and all options instead"
        )
    return converted
