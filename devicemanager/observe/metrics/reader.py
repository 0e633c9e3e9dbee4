"""Count a kubelet's events and calls without delaying the threads that publish them.

An event is published on the thread of an admission, and a call is recorded on the thread that made
it. These threads must not wait for a scrape, which holds a lock while it reads the counts.
Therefore they only append to a deque, which needs no lock, and the reader empties it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from devicemanager.core.topology import PolicyName, ScopeName
from devicemanager.events.calls.call import Call
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.metrics.tally import (
    Admitted,
    Allocated,
    DriverCalled,
    Observation,
    Prepared,
    Registered,
    Tally,
)

__all__ = ["Reader"]

T = TypeVar("T")

_DRIVER_RPCS: Final = ("NodePrepareResources", "NodeUnprepareResources")
_OPERATIONS: Final[Mapping[EventKind, tuple[str, bool]]] = {
    EventKind.CLAIMS_PREPARED: ("PrepareResources", False),
    EventKind.PREPARE_FAILED: ("PrepareResources", True),
    EventKind.CLAIMS_UNPREPARED: ("UnprepareResources", False),
    EventKind.UNPREPARE_FAILED: ("UnprepareResources", True),
}
"""By kind of event: the operation of the DRA manager that has ended, and True if it failed."""

# Length of the queue at which ``wake`` is called.
_QUEUE_LIMIT: Final = 1000


class Reader:
    """Counter of a kubelet's events and calls. It counts from its creation until ``close``.
    Thread-safe.

    The threads that publish events and calls only append them to a queue, and ``read`` counts
    them. When 1000 items are queued, one of these threads calls ``wake``. This function must return
    immediately, and make another thread call ``read`` soon.
    """

    def __init__(self, kubelet: MockKubelet, wake: Callable[[], None] | None = None) -> None:
        self._kubelet = kubelet
        self._wake = wake
        # Appended to without a lock; only the owner of the lock removes items.
        self._queue: deque[Observation | None] = deque()
        self._is_waking = False
        # Guards the tally.
        self._lock = threading.Lock()
        self._tally = self._new()
        self._unsubscribe = (
            kubelet.events.subscribe(self._event),
            kubelet.calls.subscribe(self._call),
        )

    def close(self) -> None:
        """Stop counting events and calls."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def read(self, use: Callable[[Tally], T]) -> T:
        """Count the queued items. Then call ``use`` with the counts, and return its result.

        The counts are those of the current or latest kubelet instance. They do not change while
        ``use`` runs.
        """
        with self._lock:
            # Cleared before the loop, so that an item appended during the loop can call ``wake``.
            self._is_waking = False
            # The number of items is fixed, so that the loop ends even if the kubelet is busy.
            for _ in range(len(self._queue)):
                item = self._queue.popleft()
                if item is None:
                    self._tally = self._new()
                else:
                    self._tally.add(item)
            return use(self._tally)

    def _new(self) -> Tally:
        policy = self._kubelet.settings.topology_manager
        return Tally(
            aligns=policy.asks_for_hints,
            guarantees=policy.name is PolicyName.SINGLE_NUMA_NODE,
            per_pod=policy.scope is ScopeName.POD,
        )

    # -- on the publishing threads -------------------------------------------------------

    def _event(self, event: Event) -> None:
        match event.kind:
            case EventKind.ADMITTED | EventKind.REJECTED:
                details: Mapping[str, Any] = event.details
                reason = details.get("reason", "")
                self._put(Admitted(details["seconds"], details["containers"], reason))
            case kind if kind in _OPERATIONS:
                operation, failed = _OPERATIONS[kind]
                seconds: Any = event.details["seconds"]
                self._put(Prepared(operation, failed, seconds))
            case EventKind.STOPPED:
                self._put(None)  # the next kubelet instance starts at zero

    def _call(self, call: Call) -> None:
        if call.rpc == "Allocate":
            self._put(Allocated(call.resource or "", call.duration))
        elif call.rpc == "Register":
            self._put(Registered(call.resource or ""))
        elif call.rpc in _DRIVER_RPCS:
            self._put(DriverCalled(call.resource or "", call.rpc, call.code, call.duration))

    def _put(self, item: Observation | None) -> None:
        self._queue.append(item)
        # Two threads may both call ``wake``, which is harmless. A lock would delay admissions.
        if len(self._queue) >= _QUEUE_LIMIT and not self._is_waking and self._wake is not None:
            self._is_waking = True
            self._wake()
