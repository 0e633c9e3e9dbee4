"""The methods of a ``MockKubelet`` that wait: blocking, or with asyncio.

A wait for events and RPCs checks each event and each RPC when it is published. A wait for a
condition checks the condition after each event. It also checks every ``_POLL_SECONDS`` seconds,
because a condition can become true without an event, just because time passes.

A wait that times out raises ``WaitTimeout`` with a report: what was expected, why it cannot
happen (if known), and the events and RPCs around the start of the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import ResourceName
from devicemanager.core.printable import printable
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import Mark
from devicemanager.events.stream import Event, EventStream
from devicemanager.kubelet.arguments import check_function, check_resource, check_seconds
from devicemanager.kubelet.expectations import (
    Entry,
    Expected,
    Search,
    Step,
    Watch,
    is_later,
    place,
)

if TYPE_CHECKING:
    from devicemanager.events.calls.log import CallLog
    from devicemanager.kubelet.lifecycle import Lifecycle

__all__ = ["WaitTimeout", "Waits"]

_SHOWN = 20
_SHOWN_BEFORE = 10
_POLL_SECONDS = 0.25
_LONGEST_SECONDS = 3600.0
"""Longest wait in one call, in seconds; Python's locks reject larger values, such as infinity."""


class WaitTimeout(DeviceManagerError, AssertionError):
    """Error of a wait that timed out; its text shows the events and calls that happened."""


class Waits:
    """The waits of one kubelet. ``MockKubelet`` documents the methods."""

    def __init__(
        self, events: EventStream, calls: CallLog, life: Lifecycle, socket: Callable[[], object]
    ) -> None:
        """``socket`` returns the path of ``kubelet.sock``, for reports."""
        self._events = events
        self._calls = calls
        self._life = life
        self._socket = socket

    # -- conditions ------------------------------------------------------------------

    def resource(self, resource: str, count: int | None, timeout: float) -> None:
        """Wait until ``count`` devices of a resource are allocatable; None means one or more."""
        name = check_resource(resource, count)
        check_seconds(timeout)
        if not self._events.wait_for(lambda: self._is_allocatable(name, count), timeout):
            raise self._no_devices(name, count, timeout)

    async def resource_async(self, resource: str, count: int | None, timeout: float) -> None:
        """Wait as ``resource`` does, without blocking the running event loop."""
        name = check_resource(resource, count)
        check_seconds(timeout)
        if not await self._holds(lambda: self._is_allocatable(name, count), timeout):
            raise self._no_devices(name, count, timeout)

    def condition(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait until ``condition()`` is true. ``what`` names the condition in the report."""
        check_function(condition, "condition")
        check_seconds(timeout)
        if not self._events.wait_for(condition, timeout):
            raise self._too_late(timeout, what)

    async def condition_async(
        self, condition: Callable[[], bool], timeout: float, what: str
    ) -> None:
        """Wait as ``condition`` does, without blocking the running event loop."""
        check_function(condition, "condition")
        check_seconds(timeout)
        if not await self._holds(condition, timeout):
            raise self._too_late(timeout, what)

    async def _holds(self, condition: Callable[[], bool], timeout: float) -> bool:
        limit = time.monotonic() + timeout
        wakeup = _Wakeup()
        # Subscribed before the first check: no event in between is missed.
        unsubscribe = self._events.subscribe(lambda _: wakeup.set())
        try:
            while True:
                wakeup.clear()
                # On another thread: the condition can wait for a lock or write the checkpoint.
                if await asyncio.to_thread(condition):
                    return True
                remaining = limit - time.monotonic()
                if remaining <= 0:
                    return False
                # Not longer: a condition can become true without an event, just by time.
                await wakeup.wait(min(remaining, _POLL_SECONDS))
        finally:
            unsubscribe()

    # -- events and calls ------------------------------------------------------------

    def mark(self, since: Mark | int | None = None, after: int | None = None) -> Mark:
        """Return a mark of a moment. A wait with this mark finds only later events and calls.

        By default, the moment is now. A mark in ``since`` is returned unchanged. ``since`` can also
        be the number of an event. A wait then finds the events after this event, and the calls from
        now on. ``after`` is the number of an event, which is used if ``since`` is None.
        """
        # The number of an event does not say which calls are later: count calls from now.
        now = self._calls.mark()
        number = after if since is None else since
        if number is None:
            return now
        if not isinstance(number, (Mark, int)):
            raise RequestError(
                f"invalid since {number!r}: expected a mark or the number of an event"
            )
        return number if isinstance(number, Mark) else Mark(number, now.call)

    def event(self, expected: Expected, since: Mark | int | None, after: int | None) -> Event:
        """Wait for the event that ``expected`` describes, and return the event.

        The event must come after ``since``, which is a mark or the number of an event. If ``since``
        is None, the event must come after ``after``, the number of an event. If both are None, the
        event must come after the start of the wait.
        """
        (found,) = self.sequence([expected], self.mark(since, after))
        return cast(Event, found)

    async def event_async(self, expected: Expected, since: Mark | int | None) -> Event:
        """Wait as ``event`` does, without blocking the running event loop."""
        (found,) = await self.sequence_async([expected], self.mark(since))
        return cast(Event, found)

    def call(self, expected: Expected, since: Mark | None) -> Call:
        """Wait for the call that ``expected`` describes, and return the call.

        The call must end after the mark ``since``; None stands for the start of the wait.
        """
        (found,) = self.sequence([expected], since)
        return cast(Call, found)

    def sequence(self, steps: Iterable[Step], since: Mark | None) -> list[Entry]:
        """Wait until all steps have happened in this order, and return their events and calls.

        They must come after the mark ``since``; None stands for the start of the wait.
        """
        wanted, start = [*map(Expected.of, steps)], self.mark(since)
        woken = threading.Event()
        with Watch(self._events, self._calls, start, woken.set) as watch:
            search = Search(wanted, watch)
            while True:
                woken.clear()
                if (remaining := search.advance()) is None:
                    return search.found
                if remaining <= 0:
                    raise self._not_found(wanted, search, start)
                woken.wait(min(remaining, _LONGEST_SECONDS))

    async def sequence_async(self, steps: Iterable[Step], since: Mark | None) -> list[Entry]:
        """Wait as ``sequence`` does, without blocking the running event loop."""
        wanted, start = [*map(Expected.of, steps)], self.mark(since)
        wakeup = _Wakeup()
        with Watch(self._events, self._calls, start, wakeup.set) as watch:
            search = Search(wanted, watch)
            while True:
                wakeup.clear()
                if (remaining := search.advance()) is None:
                    return search.found
                if remaining <= 0:
                    raise self._not_found(wanted, search, start)
                await wakeup.wait(remaining)

    # -- state of a resource ---------------------------------------------------------

    def _is_allocatable(self, resource: ResourceName, count: int | None) -> bool:
        process = self._life.process
        if process is None:
            return False  # another thread may be about to start it
        manager = process.manager
        # A grace period may be over although its timer has not fired yet.
        manager.expire()
        allocatable = manager.capacity().allocatable.get(resource)
        if allocatable is None:
            # A resource removed after the grace period counts 0; an unknown one has no count.
            return count == 0 and resource in manager.removed()
        return allocatable > 0 if count is None else allocatable == count

    def _missing_plugin(self, resource: ResourceName) -> str:
        """Explain in words why no plugin of a resource is connected; empty if a plugin is
        connected."""
        process = self._life.process
        if process is None:
            return "the kubelet is not running; "
        state = process.manager.state
        with state.lock:
            is_known, serving = resource in state.endpoints, state.endpoints.serving(resource)
        if not is_known:
            return f"no plugin has registered the resource on {self._socket()}; "
        if serving is None or not serving.id:  # known only from the checkpoint
            return f"its plugin has not registered on {self._socket()} since the restart; "
        return "" if state.endpoints.is_connected(serving.id) else "its plugin has disconnected; "

    # -- reports ---------------------------------------------------------------------

    def _no_devices(self, resource: ResourceName, count: int | None, timeout: float) -> WaitTimeout:
        wanted = "any" if count is None else str(count)
        what = f"{wanted} allocatable devices of {resource}"
        return self._too_late(timeout, what, self._missing_plugin(resource))

    def _too_late(self, timeout: float, what: str, why: str = "") -> WaitTimeout:
        waited = printable(f"waited {timeout:g} s for {what}; {why}")
        return WaitTimeout(f"{waited}what did happen:\n" + self._report(self._all()[-_SHOWN:]))

    def _not_found(self, steps: Sequence[Expected], search: Search, since: Mark) -> WaitTimeout:
        """Return the error for the first step that was not found.

        Its text shows the events and calls around the mark, and the steps that were found.
        """
        wanted = steps[len(search.found)]
        which = f" (number {len(search.found) + 1} of {len(steps)})" if len(steps) > 1 else ""
        entries = self._all()
        before = [entry for entry in entries if not is_later(entry, since)]
        # A common mistake: the expected entry came just before the wait began. ``where`` is not
        # called here, because the user expects it to be called only for entries after the mark.
        came_before = not search.found and any(
            map(wanted.matches_without_where, before[-_SHOWN_BEFORE:])
        )
        why = (
            "it occurred before the wait began: take a mark before its cause, and pass the mark as "
            "since; "
        )
        waited = printable(
            f"waited {wanted.within:g} s for {wanted}{which}; {why if came_before else ''}"
        )
        later = [entry for entry in entries if is_later(entry, since)]
        report = self._report(before[-_SHOWN_BEFORE:], later, search.found)
        return WaitTimeout(f"{waited}what did happen:\n{report}")

    def _all(self) -> list[Entry]:
        return sorted((*self._events.recent(), *self._calls.all()), key=place)

    def _report(
        self,
        before: Sequence[Entry],
        later: Sequence[Entry] | None = None,
        found: Sequence[Entry] = (),
    ) -> str:
        """Return the lines of a report, for people.

        ``before`` are the entries before the wait, ``later`` the entries that the wait searched,
        and ``found`` the entries of its steps.
        """
        lines = [f"  {entry}" for entry in before]
        if later is not None:
            numbers = {place(entry): f"   <- number {n}" for n, entry in enumerate(found, 1)}
            lines += ["  -- matched from here --"]
            shown = [f"  {entry}{numbers.get(place(entry), '')}" for entry in later]
            left_out = len(shown) - 2 * _SHOWN
            if left_out > 0:
                shown[_SHOWN:-_SHOWN] = [f"  ... {left_out} more ..."]
            lines += shown
        lines = lines if before or later else ["  nothing"]
        lines += [f"  not answered yet: {call}" for call in self._calls.unanswered()]
        with contextlib.suppress(DeviceManagerError):  # the kubelet is stopped
            allocatable = dict(self._life.serving().manager.capacity().allocatable)
            # A node for DRA drivers has no such resource.
            if allocatable:
                lines.append(printable(f"  allocatable now: {allocatable}"))
        return "\n".join(lines)


class _Wakeup:
    """An ``asyncio.Event`` of the running loop that any thread can set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the wait was cancelled
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
