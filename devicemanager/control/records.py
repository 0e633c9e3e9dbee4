"""What a client shows of the kubelet's records and time: events, calls, the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from devicemanager.control import convert, shapes
from devicemanager.events.calls.call import Call
from devicemanager.events.calls.matching import CallQueries
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.registry import as_fault
from devicemanager.faults.states import FaultState

__all__ = ["RemoteCalls", "RemoteClock", "RemoteEvents", "RemoteFaults"]


class Asking(Protocol):
    """What these need of a client."""

    def node(self) -> shapes.Node: ...
    def ask(
        self,
        name: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
    ) -> Any: ...
    def read(self, name: str, query: Mapping[str, object]) -> Iterator[Any]: ...


class RemoteEvents:
    """The events of a kubelet."""

    def __init__(self, client: Asking) -> None:
        self._client = client

    @property
    def latest(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._client.node().latest_event

    def recent(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The latest events, oldest first; of the given kinds only, if any are given."""
        return tuple(self._read(0, follow=False, kinds=kinds))

    def follow(self, since: int | None = None, *kinds: EventKind) -> Iterator[Event]:
        """Events later than ``since``, or than now, as they come, until the server ends."""
        return self._read(self.latest if since is None else since, follow=True, kinds=kinds)

    def _read(self, since: int, *, follow: bool, kinds: tuple[EventKind, ...]) -> Iterator[Event]:
        query = {"since": since, "follow": follow, "kind": [kind.value for kind in kinds]}
        for shape in self._client.read("getEvents", query):
            if shape.kind != convert.EVENTS_DROPPED:
                yield convert.event_from(shape)


class RemoteCalls(CallQueries):
    """The calls of a kubelet's plugins; to be asked as ``MockKubelet.calls``."""

    def __init__(self, client: Asking) -> None:
        self._client = client

    @property
    def latest(self) -> int:
        """The number of the latest call; 0 before the first."""
        return self._client.node().latest_call

    @property
    def dropped(self) -> int:
        """How many calls are not kept any more."""
        return self._client.node().dropped_calls

    @property
    def in_progress(self) -> tuple[shapes.PendingCall, ...]:
        """Calls that are not answered yet, and the list streams that are open."""
        found: shapes.PendingCallList = self._client.ask("getPendingCalls")
        return tuple(found.items)

    def all(self) -> list[Call]:
        """Every call that is kept, in the order of their numbers."""
        return list(self._read(0, follow=False))

    def follow(self, since: int | None = None) -> Iterator[Call]:
        """Calls later than ``since``, or than now, as they end, until the server ends."""
        return self._read(self.latest if since is None else since, follow=True)

    def _read(self, since: int, *, follow: bool) -> Iterator[Call]:
        query = {"since": since, "follow": follow, "bytes": True}
        for shape in self._client.read("getCalls", query):
            if shape.rpc != convert.CALLS_DROPPED:
                yield convert.call_from(shape)

    def _missing(self) -> str:
        dropped = self.dropped
        return f"{dropped} earlier calls are no longer stored" if dropped else ""


class RemoteFaults:
    """The faults of a kubelet; to be used as ``MockKubelet.faults``."""

    def __init__(self, client: Asking) -> None:
        self._client = client

    @property
    def seed(self) -> int:
        """Decides where a fault has a probability and no seed of its own."""
        return self._list().seed

    def set(self, fault: Any, /, **options: Any) -> FaultState:
        """Set a fault: by its kind and options, as one line, as a mapping or a ``Fault``.
        Raises FaultError, and what an action raises."""
        body = shapes.SetFault(spec=str(as_fault(fault, options)))
        return convert.fault_from(self._client.ask("setFault", body=body))

    def list(self) -> tuple[FaultState, ...]:
        """Every fault that was set and not cleared."""
        return tuple([convert.fault_from(each) for each in self._list().items])

    def clear(self, which: int | str | None = None) -> int:
        """Take back a fault by its id, every fault of a kind, or all; returns how many. Raises
        RequestError for an id or a kind of which none is set."""
        cleared: shapes.Cleared
        if isinstance(which, int):
            cleared = self._client.ask("clearFault", str(which))
        else:
            cleared = self._client.ask("clearFaults", query={"kind": which})
        return cleared.count

    def _list(self) -> shapes.FaultList:
        found: shapes.FaultList = self._client.ask("listFaults")
        return found


class RemoteClock:
    """The clock of a kubelet."""

    def __init__(self, client: Asking) -> None:
        self._client = client

    def _read(self) -> shapes.Clock:
        found: shapes.Clock = self._client.ask("getClock")
        return found

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        return self._read().monotonic

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._read().time

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises RequestError unless the kubelet has a manual clock."""
        self._client.ask("advanceClock", body=shapes.Advance(seconds=seconds))
