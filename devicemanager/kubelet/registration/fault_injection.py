"""Apply injected faults to calls, lists and connections of plugins.

``devicemanager.faults`` decides which faults fire. This module carries them out. It can delay a
call, fail a call before or after it is made, or cut the connection to the plugin. It can also stop
reading device lists, and shut down connections of the Registration service. The call log shows the
faults that affected a call.

Except for ``PluginFaults.closed``, the functions are called only if a fault is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.core.api.codes import go_name
from devicemanager.core.errors import InjectedError
from devicemanager.core.ids import ResourceName
from devicemanager.events.calls.log import CallInProgress
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import FaultRegistry, Fired, first

if TYPE_CHECKING:
    from devicemanager.faults.states import Hold


implements(InjectionPoint.LIST, {Effect.STOP_READING})
implements(InjectionPoint.CALL, {Effect.FAIL_CALL, Effect.DELAY_CALL, Effect.CUT_CALL})

_BEFORE, _AFTER = "before", "after"


class PluginFaults:
    """Injector of faults into the calls and device lists of one connection to a plugin."""

    def __init__(self, registry: FaultRegistry, resource: ResourceName, name: str) -> None:
        self.registry = registry
        """The kubelet's fault registry. Its attribute ``armed`` is empty if no fault can fire."""
        self._resource = resource
        # Faults name a plugin by the file name of its socket; the watcher's names are paths.
        self._plugin = Path(name).name
        self._stalled: Hold | None = None

    # -- calls -----------------------------------------------------------------------

    @contextlib.contextmanager
    def around(
        self, rpc: str, call: CallInProgress | None, cut: Callable[[], None]
    ) -> Iterator[None]:
        """Apply faults before, during and after the call that the ``with`` block makes.

        ``cut`` cuts the connection. Raises InjectedError if a fault makes the call fail, before or
        after it is made.
        """
        # Faults are looked up twice, because a fault fires either before the call or after it.
        before = self._fired(rpc, _BEFORE, call)
        for hold in _holds(before):
            hold.wait()
        _fail(before, cut)
        with _cutting(before, cut):
            yield
        after = self._fired(rpc, _AFTER, call)
        for hold in _holds(after):
            hold.wait()
        _fail(after, cut)

    def _fired(self, rpc: str, phase: str, call: CallInProgress | None) -> tuple[Fired, ...]:
        context = FaultContext(self._resource, self._plugin, rpc, phase)
        fired = self.registry.at(InjectionPoint.CALL, context)
        note(fired, call)
        return fired

    # -- lists -----------------------------------------------------------------------

    def list_arrived(self) -> None:
        """Block the thread that reads lists while a fault delays the reading."""
        fired = self.registry.at(InjectionPoint.LIST, FaultContext(self._resource, self._plugin))
        fault = first(fired, Effect.STOP_READING)
        if fault is not None:
            self._stalled = fault.hold()
            self._stalled.wait()
            self._stalled = None

    def closed(self) -> None:
        """Unblock the thread that reads lists, because the connection is closed."""
        # Read once, because the reader clears the field when it continues.
        stalled = self._stalled
        if stalled is not None:
            stalled.release()


def note(fired: Iterable[Fired], call: CallInProgress | None) -> None:
    """In the call log, append the fired faults to the field ``fault`` of the call's entry."""
    if call is not None:
        call.fault = "; ".join(filter(None, (call.fault, *map(str, fired))))


def not_made(fault: Fired, call: CallInProgress | None) -> InjectedError:
    """Record a call that a fault prevents, and return the error that the caller must raise."""
    error = _injected(fault)
    if call is not None:
        note((fault,), call)
        call.failed(error.code, error.description)
    return error


def _injected(fault: Fired) -> InjectedError:
    return InjectedError(go_name(fault["code"]), fault["text"], str(fault))


def _holds(fired: Iterable[Fired]) -> Iterator[Hold]:
    return (each.hold() for each in fired if each.effect is Effect.DELAY_CALL)


def _is_during(fault: Fired) -> bool:
    return fault.effect is Effect.CUT_CALL and fault["when"] == "during"


@contextlib.contextmanager
def _cutting(fired: Iterable[Fired], cut: Callable[[], None]) -> Iterator[None]:
    """If a fault with ``when=during`` fires, cut the connection while the call is in flight."""
    holds = [each.hold() for each in fired if _is_during(each)]
    for hold in holds:
        # When the delay ends, a timer cuts the connection while the plugin handles the call.
        hold.on_release(cut)
    try:
        yield
    finally:
        for hold in holds:
            hold.cancel()


def _fail(fired: Iterable[Fired], cut: Callable[[], None]) -> None:
    """Raise InjectedError if one of the faults fails the call or cuts the connection."""
    fault = first(
        (each for each in fired if not _is_during(each)), Effect.FAIL_CALL, Effect.CUT_CALL
    )
    if fault is None:
        return
    if fault.effect is Effect.FAIL_CALL:
        raise _injected(fault)
    cut()
    # The code that gRPC reports for a connection that breaks during a call.
    raise InjectedError("Unavailable", "the connection was cut", str(fault))
