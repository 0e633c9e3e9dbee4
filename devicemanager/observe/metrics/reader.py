"""Reads a kubelet's events and calls, apart from the threads that they happen on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from devicemanager.core.topology import PolicyName, ScopeName
from devicemanager.events.calls.call import Call
from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.metrics.tally import Admitted, Allocated, Happened, Registered, Tally

__all__ = ["Reader"]

T = TypeVar("T")

_AT_ONCE: Final = 1000
"""After so many things that happened somebody is asked to count them."""


class Reader:
    """Counts what happens to a kubelet, from now until ``close``.

    The thread of an admission only notes that something happened; whoever calls ``read``
    counts it. So that not too much waits, ``wake`` is called now and then, on such a thread: it
    has to let ``read`` be called soon, on another one. May be used from any thread.
    """

    def __init__(self, kubelet: MockKubelet, wake: Callable[[], None] | None = None) -> None:
        self._kubelet = kubelet
        self._wake = wake
        # Appended to without a lock; the left end belongs to who has the lock.
        self._happened: deque[Happened | None] = deque()
        self._is_waking = False
        # Guards the tally.
        self._lock = threading.Lock()
        self._tally = self._new()
        self._ends = (
            kubelet.events.subscribe(self._event),
            kubelet.calls.subscribe(self._call),
        )

    def close(self) -> None:
        """Read no more."""
        for end in self._ends:
            end()

    def read(self, look: Callable[[Tally], T]) -> T:
        """What ``look`` makes of the numbers of the kubelet's present life, or of the last one.
        It has them for itself meanwhile."""
        with self._lock:
            self._is_waking = False
            for _ in range(len(self._happened)):
                happened = self._happened.popleft()
                if happened is None:
                    self._tally = self._new()
                else:
                    self._tally.add(happened)
            return look(self._tally)

    def _new(self) -> Tally:
        policy = self._kubelet.settings.topology_manager
        return Tally(
            aligns=policy.asks_for_hints,
            guarantees=policy.name is PolicyName.SINGLE_NUMA_NODE,
            per_pod=policy.scope is ScopeName.POD,
        )

    # -- on the threads of others --------------------------------------------------------

    def _event(self, event: Event) -> None:
        match event.kind:
            case EventKind.ADMITTED | EventKind.REJECTED:
                details: Mapping[str, Any] = event.details
                reason = details.get("reason", "")
                self._note(Admitted(details["seconds"], details["containers"], reason))
            case EventKind.STOPPED:
                self._note(None)  # the next process begins at zero

    def _call(self, call: Call) -> None:
        if call.rpc == "Allocate":
            self._note(Allocated(call.resource or "", call.duration))
        elif call.rpc == "Register":
            self._note(Registered(call.resource or ""))

    def _note(self, happened: Happened | None) -> None:
        self._happened.append(happened)
        if len(self._happened) >= _AT_ONCE and not self._is_waking and self._wake is not None:
            self._is_waking = True
            self._wake()
