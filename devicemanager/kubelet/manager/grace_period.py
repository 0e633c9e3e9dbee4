"""The grace period: what happens when a resource's last plugin has been gone for too long."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from devicemanager.core.ids import ResourceName
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.io.clock import Cancel, Clock
from devicemanager.kubelet.manager.state import State


class GracePeriod:
    """Removes resources whose grace period is over: by itself, with one timer of the clock,
    and whenever somebody asks.

    The kubelet does so when it reads capacities (``GetCapacity``, v1.32), which its status
    loop does every few seconds. Here nobody reads regularly, so there is a timer.
    """

    def __init__(
        self,
        state: State,
        clock: Clock,
        events: EventStream,
        seconds: float,
        write: Callable[[], None],
    ) -> None:
        """``write`` brings the checkpoint up to date; called after something was removed."""
        self._state = state
        self._clock = clock
        self._events = events
        self._seconds = seconds
        self._write = write
        # Guarded by the state's lock.
        self._removed: set[ResourceName] = set()
        # Guards the two below; taken before the state's lock where both are needed.
        self._arming = threading.Lock()
        self._cancel: Cancel | None = None
        self._closed = False

    def watch(self) -> None:
        """A resource has lost its last plugin. Without the state's lock.

        One timer is enough, the first that comes due: all resources have the same grace.
        """
        with self._arming:
            if self._closed or self._cancel is not None:
                return
            with self._state.lock:
                stopped_at = self._state.endpoints.oldest_stop()
            if stopped_at is None:
                return
            # Not at the very end of the period: it has to be over.
            after_now = math.nextafter(self._clock.monotonic(), math.inf)
            when = max(stopped_at + self._seconds, after_now)
            self._cancel = self._clock.call_at(when, self._fire)

    def _fire(self) -> None:
        with self._arming:
            self._cancel = None
        self.expire()
        self.watch()

    def expire(self) -> tuple[ResourceName, ...]:
        """Remove what is due, and write that down. Returns the names, sorted."""
        now = self._clock.monotonic()
        with self._state.lock:
            removed = self._state.endpoints.expire(now, self._seconds)
            for resource in removed:
                self._state.note_list(resource, None)
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
        """Every resource that was removed so far."""
        with self._state.lock:
            return frozenset(self._removed)

    def close(self) -> None:
        """End the timer; a removal under way is waited for."""
        with self._arming:
            self._closed = True
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
