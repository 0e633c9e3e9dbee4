"""The state of a fault that is set: its counters, the decision to fire, and its delays."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from devicemanager.faults.fault import Fault
from devicemanager.faults.injection_point import FaultContext, InjectionPoint
from devicemanager.io.clock import Cancel, Clock

__all__ = ["Entry", "FaultState", "Hold"]


@attrs.frozen
class FaultState:
    """Snapshot of a fault that was set, with its ID and its counters."""

    id: int
    """Number of the fault; faults are numbered from 1, in the order in which they were set."""
    fault: Fault
    seen: int
    """Number of matches: how often the fault's options matched at its injection point."""
    fired: int
    """Number of times that the fault fired."""
    holding: int = 0
    """Number of calls and streams that the fault delays now."""

    @property
    def is_spent(self) -> bool:
        """True if the fault cannot fire any more."""
        return self.fault.times == self.fired or self.fault.is_immediate

    def as_data(self) -> dict[str, Any]:
        """Return the state as a mapping for JSON.

        Its keys are ``id``, ``spec`` (the line that sets the fault), ``seen``, ``fired``,
        ``holding``, ``spent``, and those of :meth:`Fault.as_data`.
        """
        return {
            "id": self.id,
            "spec": str(self.fault),
            "seen": self.seen,
            "fired": self.fired,
            "holding": self.holding,
            "spent": self.is_spent,
            **self.fault.as_data(),
        }


@attrs.define(eq=False)
class Entry:
    """The registry's record of a fault that is set; guarded by the registry's lock."""

    id: int
    fault: Fault
    seen: int = 0
    fired: int = 0
    matches: Counter[str | None] = attrs.field(factory=Counter)
    """Number of matches (see ``Fault``) for each resource. The key None counts the matches for no
    resource. The sum of all numbers is ``seen``."""
    holds: set[Hold] = attrs.field(factory=set)
    prepared: Any = None
    """The data that ``Actions.prepare`` collected when the fault was set."""

    def state(self) -> FaultState:
        return FaultState(self.id, self.fault, self.seen, self.fired, len(self.holds))

    def concerns(self, context: FaultContext) -> bool:
        """True if the plugin and the call in ``context`` match the fault's options."""
        fault = self.fault
        wanted = fault.resource, fault.plugin, fault.rpc
        actual = context.resource, context.plugin, context.rpc
        if any(one not in (None, other) for one, other in zip(wanted, actual, strict=True)):
            return False
        # Only a call has two phases: before the plugin receives it, and after the response.
        return fault.point is not InjectionPoint.CALL or fault.phase == context.phase

    def fires(self, context: FaultContext, seed: int) -> bool:
        """Count a match of the fault. Return True if the fault fires at this match."""
        fault = self.fault
        self.seen += 1
        self.matches[context.resource] += 1
        # Counted before the decision, so that ``seen`` includes matches that did not fire.
        if self.seen <= fault.after or self.fired == fault.times:
            return False
        if fault.probability < 1:
            # Counted by resource: the outcome does not depend on the order in which threads of
            # different plugins reach the injection point.
            own = f"{seed}/{self.id}" if fault.seed is None else str(fault.seed)
            count = self.matches[context.resource]
            source = random.Random(f"{own}/{context.resource}/{count}")
            if source.random() >= fault.probability:
                return False
        self.fired += 1
        return True


class Hold:
    """Delay of a call or a stream. ``release`` or ``cancel`` ends the delay. Thread-safe."""

    def __init__(self, ended: Callable[[Hold], None] | None = None) -> None:
        """When the delay ends, ``ended`` is called with this ``Hold`` as the argument."""
        self._ended = ended
        # Guards _callbacks and is_over.
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.is_over = False
        self._cancel: Cancel | None = None

    def start(self, clock: Clock, seconds: float | None) -> None:
        """Start the delay. ``clock`` calls ``release`` after ``seconds``. If ``seconds`` is None,
        the delay lasts until ``release`` or ``cancel`` is called."""
        if seconds is not None:
            self._cancel = clock.call_at(clock.monotonic() + seconds, self.release)

    def on_release(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``release`` is called, or now if the delay has already ended."""
        with self._lock:
            if not self.is_over:
                self._callbacks.append(callback)
                return
        callback()

    def release(self) -> None:
        """End the delay and call the callbacks, so that delayed calls resume. Idempotent."""
        self._end(call=True)

    def cancel(self) -> None:
        """End the delay without calling any callback.

        Do not call this method while a thread is blocked in ``wait``: the thread would stay
        blocked.
        """
        self._end(call=False)

    def _end(self, call: bool) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            if self.is_over:
                return
            self.is_over = True
        # Outside the lock: callbacks take other locks, and may read this delay.
        if self._cancel is not None:
            self._cancel()
        if self._ended is not None:
            self._ended(self)
        for callback in callbacks if call else ():
            callback()

    def wait(self) -> None:
        """Block the calling thread until ``release`` is called.

        Return immediately if the delay has already ended.
        """
        # Each call has its own threading.Event, so any number of threads can wait.
        over = threading.Event()
        self.on_release(over.set)
        over.wait()
