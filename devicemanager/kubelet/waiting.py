"""Waiting for what a kubelet is about to do, and what to say if it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from devicemanager.api.names import is_extended_resource_name
from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.ids import ResourceName
from devicemanager.core.printable import printable
from devicemanager.events import Event, EventKind, EventStream
from devicemanager.kubelet.lifecycle import Lifecycle

__all__ = ["WaitTimeout", "Waits"]

_SHOWN_EVENTS = 20


class WaitTimeout(DeviceManagerError, AssertionError):
    """What was waited for did not happen; the text says what did."""


class Waits:
    """The waits of one kubelet; see ``MockKubelet.wait_for`` and its neighbours."""

    def __init__(self, events: EventStream, life: Lifecycle, socket: Callable[[], object]) -> None:
        """``socket`` returns where plugins register, for people."""
        self._events = events
        self._life = life
        self._socket = socket

    def resource(self, resource: str, count: int | None, timeout: float) -> None:
        """Until ``count`` devices are allocatable; None: any."""
        if not is_extended_resource_name(resource):
            raise RequestError(
                f"no plugin can register {resource!r}: a resource is named with its domain, "
                "such as vendor.com/gpu"
            )
        name = ResourceName(resource)
        wanted = "any" if count is None else str(count)
        what = f"{wanted} allocatable devices of {resource}"
        if not self._events.wait_for(lambda: self._is_there(name, count), timeout):
            raise self._too_late(timeout, what, self._missing(name))

    def condition(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Until ``condition()`` holds."""
        if not self._events.wait_for(condition, timeout):
            raise self._too_late(timeout, what)

    def event(
        self,
        kinds: Sequence[EventKind | str],
        resource: str | None,
        after: int | None,
        timeout: float,
    ) -> Event:
        """Until an event later than ``after``, or than this call, matches; returns it."""
        wanted = frozenset(map(_kind, kinds))

        def matches(event: Event) -> bool:
            right_kind = not wanted or event.kind in wanted
            return right_kind and (resource is None or event.resource == resource)

        found = self._events.wait_for_event(matches, timeout, after)
        if found is None:
            names = " or ".join(kind.value for kind in EventKind if kind in wanted) or "of any kind"
            suffix = f" of {resource}" if resource else ""
            raise self._too_late(timeout, f"the event {names}{suffix}")
        return found

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

    def _too_late(self, timeout: float, what: str, why: str = "") -> WaitTimeout:
        waited = printable(f"waited {timeout:g} s for {what}; {why}")
        return WaitTimeout(f"{waited}{self._story()}")

    def _story(self) -> str:
        events = self._events.recent()[-_SHOWN_EVENTS:]
        lines = [f"  {event}" for event in events] or ["  nothing"]
        with contextlib.suppress(DeviceManagerError):
            allocatable = dict(self._life.serving().manager.capacity().allocatable)
            lines.append(printable(f"  allocatable now: {allocatable}"))
        return "what did happen:\n" + "\n".join(lines)


def _kind(kind: EventKind | str) -> EventKind:
    try:
        return EventKind(kind)
    except ValueError:
        known = ", ".join(each.value for each in EventKind)
        raise RequestError(f"there is no event {kind!r}: choose from {known}") from None
