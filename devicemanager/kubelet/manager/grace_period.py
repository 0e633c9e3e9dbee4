"""Remove resources whose last plugin has been disconnected for longer than the grace period.

The kubelet removes such resources when it reads capacities (``GetCapacity``, v1.32), which its
status loop does every few seconds. The mock has no such loop and uses a timer.

There is at most one timer, for the resource that expires first; all resources have the same
grace period. ``_arming`` guards the timer and is always taken before the state's lock.
``_fire`` clears the timer before it removes resources. If a plugin disconnects during the removal,
a new timer is therefore started.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Cancel, Clock
from devicemanager.kubelet.manager.state import State


class GracePeriod:
    """Remover of resources that have had no plugin for longer than the grace period.

    A timer or a call of ``expire`` starts the removal.
    """

    def __init__(
        self,
        state: State,
        clock: Clock,
        events: EventStream,
        seconds: float,
        write: Callable[[], None],
    ) -> None:
        """``seconds`` is the grace period. ``write`` writes the checkpoint; it is called after
        resources were removed."""
        self._state = state
        self._clock = clock
        self._events = events
        self._seconds = seconds
        self._write = write
        # Guarded by the state's lock.
        self._removed: set[ResourceName] = set()
        # Guards the two fields below; taken before the state's lock.
        self._arming = threading.Lock()
        self._cancel: Cancel | None = None
        self._closed = False

    def watch(self) -> None:
        """Start the timer for the next removal, unless it is already running.

        Called when a resource has lost its last plugin. Must be called without the state's lock.
        """
        with self._arming:
            # A running timer is always early enough: later stops expire later.
            if self._closed or self._cancel is not None:
                return
            with self._state.lock:
                stopped_at = self._state.endpoints.oldest_stop()
            if stopped_at is None:
                return
            # A resource expires only after the end of its period. A timer that fires exactly at
            # the end must not be started for the same moment again.
            after_now = math.nextafter(self._clock.monotonic(), math.inf)
            when = max(stopped_at + self._seconds, after_now)
            self._cancel = self._clock.call_at(when, self._fire)

    def _fire(self) -> None:
        with self._arming:
            self._cancel = None
        self.expire()
        self.watch()

    def expire(self) -> tuple[ResourceName, ...]:
        """Remove resources whose grace period is over, and write the checkpoint.

        Returns the names of the removed resources, sorted.
        """
        now = self._clock.monotonic()
        with self._state.lock:
            removed = self._state.endpoints.expire(now, self._seconds)
            for resource in removed:
                self._state.note_list(resource, None)
            self._state.endpoints.forget_lists(self._state.ledger.is_in_use)
            # Stored because a wait for 0 devices must distinguish removed from unknown resources.
            self._removed.update(removed)
        for resource in removed:
            self._events.publish(
                EventKind.ENDPOINT_EXPIRED,
                f"{resource}: no plugin for {self._seconds:g} s, resource removed",
                resource=resource,
            )
        if removed:
            self._write()
        return removed

    def removed(self) -> frozenset[ResourceName]:
        """Return the names of all resources removed so far."""
        with self._state.lock:
            return frozenset(self._removed)

    def close(self) -> None:
        """Cancel the timer, and wait for a removal in progress to end."""
        with self._arming:
            self._closed = True
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
