"""Calls to a plugin, and its lists, with the faults that are set: what the registry says, done.

Nothing here is called while no fault is set at all. Each fault that fires is noted in the
record of the call that it concerns.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
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
    """The faults of one connection to a plugin."""

    def __init__(self, registry: FaultRegistry, resource: ResourceName, name: str) -> None:
        self.registry = registry
        """Its ``armed`` says whether anything is set at all."""
        self._resource = resource
        self._plugin = Path(name).name
        self._stalled: Hold | None = None

    # -- calls -----------------------------------------------------------------------

    @contextlib.contextmanager
    def around(
        self, rpc: str, call: CallInProgress | None, cut: Callable[[], None]
    ) -> Iterator[None]:
        """What happens before a call is made, during it and after it was answered; ``cut``
        cuts the connection. Raises InjectedError in place of the call or of its answer."""
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
        occasion = FaultContext(self._resource, self._plugin, rpc, phase)
        fired = self.registry.at(InjectionPoint.CALL, occasion)
        note(fired, call)
        return fired

    # -- lists -----------------------------------------------------------------------

    def list_came(self) -> None:
        """A list has come; whoever reads them waits here as long as a fault says."""
        fired = self.registry.at(InjectionPoint.LIST, FaultContext(self._resource, self._plugin))
        fault = first(fired, Effect.STOP_READING)
        if fault is not None:
            self._stalled = fault.hold()
            self._stalled.wait()
            self._stalled = None

    def closed(self) -> None:
        """The connection is closed: nobody waits for its lists any more."""
        stalled = self._stalled
        if stalled is not None:
            stalled.release()


def note(fired: Iterable[Fired], call: CallInProgress | None) -> None:
    """Note in the record of a call what fired at it."""
    if call is not None:
        call.fault = "; ".join(filter(None, (call.fault, *map(str, fired))))


def not_made(fault: Fired, call: CallInProgress | None) -> InjectedError:
    """A call that a fault fails before it is made: what to raise; it is recorded."""
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
    """Cut the connection while the call is under way, if a fault says so."""
    holds = [each.hold() for each in fired if _is_during(each)]
    for hold in holds:
        hold.then(cut)
    try:
        yield
    finally:
        for hold in holds:
            hold.cancel()


def _fail(fired: Iterable[Fired], cut: Callable[[], None]) -> None:
    """Raise InjectedError if one of them fails the call; if it cuts the connection, do."""
    fault = first(
        (each for each in fired if not _is_during(each)), Effect.FAIL_CALL, Effect.CUT_CALL
    )
    if fault is None:
        return
    if fault.effect is Effect.FAIL_CALL:
        raise _injected(fault)
    cut()  # Effect.CUT_CALL
    raise InjectedError("Unavailable", "the connection was cut", str(fault))


_DESCRIPTORS = Path("/proc/self/fd")


def drop_connections(bound: Path) -> int:
    """Shut down every connection that was accepted on the socket bound to ``bound``; returns
    how many. The socket goes on listening."""
    numbers = [int(entry.name) for entry in _DESCRIPTORS.iterdir()]
    with contextlib.ExitStack() as stack:
        # All are found before the first is shut down: whoever notices may connect again at
        # once, and that connection is to stay.
        found = [stack.enter_context(each) for each in map(_socket, numbers) if each is not None]
        ours = [each for each in found if _is_connection(each, str(bound))]
        for each in ours:
            with contextlib.suppress(OSError):  # its peer was faster
                each.shutdown(socket.SHUT_RDWR)
        return len(ours)


def _socket(number: int) -> socket.socket | None:
    """A copy of a descriptor, if it is a socket: what another thread does to it is no matter."""
    try:
        # To close a copy of a file's would give up the process's locks on that file.
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        copy = os.dup(number)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _is_connection(each: socket.socket, bound: str) -> bool:
    if each.family != socket.AF_UNIX or each.getsockname() != bound:
        return False
    return not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
