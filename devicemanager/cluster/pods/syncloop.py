"""What a node decides, one thing after another (``syncLoop``, pkg/kubelet/kubelet.go, v1.32)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from devicemanager.cluster.client.protocol import Priority
from devicemanager.cluster.nodecontext import NodeContext
from devicemanager.core.errors import RequestError

__all__ = ["SyncLoop"]

_RETRY: Final = 1.0
"""Seconds until something is tried again that a kubelet could not do which does not serve."""


class SyncLoop:
    """Runs under the node's name in the lane. May be used from any thread; nothing blocks but
    what the lane runs."""

    __slots__ = ("_closed", "_is_running", "_lock", "_node", "_waiting")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        # Guards the fields below; nothing is called under it.
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._is_running = False
        self._closed = False

    def do(self, act: Callable[[], None]) -> None:
        """Decide something, after all else that is to be decided."""
        with self._lock:
            self._waiting.append(act)
            if self._is_running or self._closed:
                return
            self._is_running = True
        self._node.lane.put(Priority.POD_STATUS, self._node.name, self._run)

    def do_after(self, delay: float, act: Callable[[], None]) -> None:
        """Decide something in ``delay`` seconds."""
        clock = self._node.clock
        clock.call_at(clock.monotonic() + delay, lambda: self.do(act))

    def _run(self) -> None:
        while True:
            with self._lock:
                acts, self._waiting = self._waiting, []
                if not acts or self._closed:
                    self._is_running = False
                    return
            for act in acts:
                self._carry_out(act)

    def _carry_out(self, act: Callable[[], None]) -> None:
        try:
            act()
        except RequestError as error:
            if self._node.kubelet.is_serving:
                self._node.say(str(error))
            else:
                # It is being restarted: there will be another one.
                self.do_after(_RETRY, act)
        except Exception as error:
            # Nothing that goes wrong with one pod may cost the others.
            self._node.say(f"unexpected {type(error).__name__}: {error} (a bug)")

    def close(self) -> None:
        """Decide nothing any more. What is under way comes to its end."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
