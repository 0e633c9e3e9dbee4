"""Loop that runs the decisions of a node one at a time (``syncLoop``, pkg/kubelet/kubelet.go,
v1.32).

The kubelet runs this loop on a goroutine. A process with thousands of nodes cannot have a thread
for each node. So the loop runs on the threads of the work queue, which all nodes share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from devicemanager.client.work_queue import Priority
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.errors import RequestError

__all__ = ["SyncLoop"]

_RETRY: Final = 1.0
"""Seconds until the retry of a decision that failed because the kubelet was restarting."""


class SyncLoop:
    """Loop that runs functions one at a time. Thread-safe; its methods do not block."""

    __slots__ = ("_closed", "_is_running", "_lock", "_node", "_waiting")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        # Guards the fields below; nothing is called under it.
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._is_running = False
        self._closed = False

    def do(self, act: Callable[[], None]) -> None:
        """Queue the function ``act``; it runs after all functions that were queued before."""
        with self._lock:
            self._waiting.append(act)
            if self._is_running or self._closed:
                return
            self._is_running = True
        self._node.work_queue.put(Priority.POD_STATUS, self._node.name, self._run)

    def do_after(self, delay: float, act: Callable[[], None]) -> None:
        """Queue the function ``act`` after ``delay`` seconds."""
        clock = self._node.clock
        clock.call_at(clock.monotonic() + delay, lambda: self.do(act))

    def _run(self) -> None:
        while True:
            with self._lock:
                acts, self._waiting = self._waiting, []
                if not acts or self._closed:
                    # Set with the lock of the check still held, because otherwise a function that
                    # is added now would never run.
                    self._is_running = False
                    return
            for act in acts:
                self._call(act)

    def _call(self, act: Callable[[], None]) -> None:
        try:
            act()
        except RequestError as error:
            if self._node.kubelet.is_serving:
                self._node.say(str(error))
            else:
                # The kubelet is restarting, so the function can succeed later.
                self.do_after(_RETRY, act)
        except Exception as error:
            # A bug that affects one pod must not stop the loop for the others.
            self._node.say(f"unexpected {type(error).__name__}: {error} (a bug)")

    def close(self) -> None:
        """Drop all queued functions and run no more. A function that is running is completed."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
