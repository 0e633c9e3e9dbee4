"""Waiting for what a kubelet is about to do, and what to say if it does not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import ResourceName
from devicemanager.core.printable import printable
from devicemanager.events.calls.matching import Mark
from devicemanager.events.stream import EventStream
from devicemanager.kubelet.arguments import check_awaited, check_function, check_seconds
from devicemanager.kubelet.call_assertions import Expected, Search
from devicemanager.kubelet.log_watch import Entry, Watch, is_later, place

if TYPE_CHECKING:
    from devicemanager.events.calls.log import CallLog
    from devicemanager.kubelet.lifecycle import Lifecycle

__all__ = ["WaitTimeout", "Waits"]

_SHOWN = 20
_SHOWN_BEFORE = 10
_POLL_SECONDS = 0.25
_LONGEST_SECONDS = 3600.0
"""What no lock can wait for is waited for in parts."""


class WaitTimeout(DeviceManagerError, AssertionError):
    """What was waited for did not happen; the text says what did."""


class Waits:
    """The waits of one kubelet; see ``MockKubelet.wait_for`` and its neighbours."""

    def __init__(
        self, events: EventStream, calls: CallLog, life: Lifecycle, socket: Callable[[], object]
    ) -> None:
        """``socket`` returns where plugins register, for people."""
        self._events = events
        self._calls = calls
        self._life = life
        self._socket = socket

    # -- conditions ------------------------------------------------------------------

    def resource(self, resource: str, count: int | None, timeout: float) -> None:
        """Until ``count`` devices are allocatable; None: any."""
        name = check_awaited(resource, count)
        check_seconds(timeout)
        if not self._events.wait_for(lambda: self._is_there(name, count), timeout):
            raise self._without_devices(name, count, timeout)

    async def resource_async(self, resource: str, count: int | None, timeout: float) -> None:
        """The same on the running event loop."""
        name = check_awaited(resource, count)
        check_seconds(timeout)
        if not await self._holds(lambda: self._is_there(name, count), timeout):
            raise self._without_devices(name, count, timeout)

    def condition(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Until ``condition()`` holds."""
        check_function(condition, "a condition")
        check_seconds(timeout)
        if not self._events.wait_for(condition, timeout):
            raise self._too_late(timeout, what)

    async def condition_async(
        self, condition: Callable[[], bool], timeout: float, what: str
    ) -> None:
        """The same on the running event loop; the condition is called on other threads."""
        check_function(condition, "a condition")
        check_seconds(timeout)
        if not await self._holds(condition, timeout):
            raise self._too_late(timeout, what)

    async def _holds(self, condition: Callable[[], bool], timeout: float) -> bool:
        limit = time.monotonic() + timeout
        woken = _Woken()
        end = self._events.subscribe(lambda _: woken.set())
        try:
            while True:
                woken.clear()
                # Not on the loop: it may wait for a lock, or write the checkpoint.
                if await asyncio.to_thread(condition):
                    return True
                rest = limit - time.monotonic()
                if rest <= 0:
                    return False
                # Bounded, so that conditions which time alone fulfils are seen too.
                await woken.wait(min(rest, _POLL_SECONDS))
        finally:
            end()

    # -- events and calls ------------------------------------------------------------

    def sequence(self, steps: Sequence[Expected], since: Mark) -> list[Entry]:
        """Until all these have happened after ``since``, in this order; returns them."""
        woken = threading.Event()
        with Watch(self._events, self._calls, since, woken.set) as watch:
            search = Search(steps, watch)
            while True:
                woken.clear()
                if (rest := search.look()) is None:
                    return search.found
                if rest <= 0:
                    raise self._not_found(steps, search, since)
                woken.wait(min(rest, _LONGEST_SECONDS))

    async def sequence_async(self, steps: Sequence[Expected], since: Mark) -> list[Entry]:
        """The same on the running event loop."""
        woken = _Woken()
        with Watch(self._events, self._calls, since, woken.set) as watch:
            search = Search(steps, watch)
            while True:
                woken.clear()
                if (rest := search.look()) is None:
                    return search.found
                if rest <= 0:
                    raise self._not_found(steps, search, since)
                await woken.wait(rest)

    def mark(self, since: Mark | int | None, after: int | None = None) -> Mark:
        """The moment that the caller means: a mark, the number of an event, or now."""
        now = self._calls.mark()
        number = after if since is None else since
        if number is None:
            return now
        if not isinstance(number, (Mark, int)):
            raise RequestError(f"since is a mark, or the number of an event: not {number!r}")
        return number if isinstance(number, Mark) else Mark(number, now.call)

    # -- what is there ---------------------------------------------------------------

    def _is_there(self, resource: ResourceName, count: int | None) -> bool:
        process = self._life.process
        if process is None:
            return False  # another thread may be about to start it
        manager = process.manager
        manager.expire()
        found = manager.capacity().allocatable.get(resource)
        if found is None:
            # Removed after its grace time it has 0; what never was has no number at all.
            return count == 0 and resource in manager.removed()
        return found > 0 if count is None else found == count

    def _missing(self, resource: ResourceName) -> str:
        """Why devices of a resource are not there, if its plugin never came."""
        process = self._life.process
        if process is None:
            return "the kubelet is not running; "
        state = process.manager.state
        with state.lock:
            is_known, serving = resource in state.endpoints, state.endpoints.serving(resource)
        if not is_known:
            return f"no plugin has registered it on {self._socket()}; "
        if serving is None or not serving.id:  # no registration, but the checkpoint's word
            return f"its plugin has not registered on {self._socket()} since the restart; "
        return "" if state.endpoints.is_connected(serving.id) else "its plugin has left; "

    # -- what to say -----------------------------------------------------------------

    def _without_devices(
        self, resource: ResourceName, count: int | None, timeout: float
    ) -> WaitTimeout:
        wanted = "any" if count is None else str(count)
        what = f"{wanted} allocatable devices of {resource}"
        return self._too_late(timeout, what, self._missing(resource))

    def _too_late(self, timeout: float, what: str, why: str = "") -> WaitTimeout:
        waited = printable(f"waited {timeout:g} s for {what}; {why}")
        return WaitTimeout(f"{waited}what did happen:\n" + self._shown(self._all()[-_SHOWN:]))

    def _not_found(self, steps: Sequence[Expected], search: Search, since: Mark) -> WaitTimeout:
        """With what happened around the mark, and what was found of it."""
        wanted = steps[len(search.found)]
        which = f" (number {len(search.found) + 1} of {len(steps)})" if len(steps) > 1 else ""
        entries = self._all()
        before = [entry for entry in entries if not is_later(entry, since)]
        missed = not search.found and any(map(wanted.is_like, before[-_SHOWN_BEFORE:]))
        why = "it came before: take a mark before what causes it, and wait since that; "
        waited = printable(
            f"waited {wanted.within:g} s for {wanted}{which}; {why if missed else ''}"
        )
        later = [entry for entry in entries if is_later(entry, since)]
        shown = self._shown(before[-_SHOWN_BEFORE:], later, search.found)
        return WaitTimeout(f"{waited}what did happen:\n{shown}")

    def _all(self) -> list[Entry]:
        return sorted((*self._events.recent(), *self._calls.all()), key=place)

    def _shown(
        self,
        before: Sequence[Entry],
        later: Sequence[Entry] | None = None,
        found: Sequence[Entry] = (),
    ) -> str:
        """Lines for people; ``later`` are those from where the wait looks."""
        lines = [f"  {entry}" for entry in before]
        if later is not None:
            numbers = {place(entry): f"   <- number {n}" for n, entry in enumerate(found, 1)}
            lines += ["  -- looked at from here --"]
            shown = [f"  {entry}{numbers.get(place(entry), '')}" for entry in later]
            left_out = len(shown) - 2 * _SHOWN
            if left_out > 0:
                shown[_SHOWN:-_SHOWN] = [f"  ... {left_out} more ..."]
            lines += shown
        lines = lines if before or later else ["  nothing"]
        lines += [f"  not answered yet: {call}" for call in self._calls.unanswered()]
        with contextlib.suppress(DeviceManagerError):
            allocatable = dict(self._life.serving().manager.capacity().allocatable)
            lines.append(printable(f"  allocatable now: {allocatable}"))
        return "\n".join(lines)


class _Woken:
    """An event of the running loop that any thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
