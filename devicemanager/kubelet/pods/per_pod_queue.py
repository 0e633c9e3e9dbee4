"""Doing one thing after another without making the one who asks wait for too long."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["InOrder"]

Act = Callable[[], None]
"""What is to be done. It must not raise."""


class InOrder:
    """Does what it is given, in order, on a thread that is there while something is to do; if
    none can be started, on that of the one who asks."""

    def __init__(self) -> None:
        # Guards all below.
        self._changed = threading.Condition()
        self._waiting: deque[Act] = deque()
        self._working = False
        self._added = 0
        self._done = 0
        self._late = False

    @property
    def is_late(self) -> bool:
        """Whether something takes longer than somebody wanted to wait for it."""
        return self._late

    def add(self, act: Act, patience: float) -> None:
        """Do ``act`` after all that was added before, and wait for its end, but no longer than
        ``patience`` seconds, and not at all behind something that is late already."""
        with self._changed:
            self._waiting.append(act)
            self._added += 1
            begins, self._working = not self._working, True
        if begins:
            try:
                threading.Thread(target=self._work, name="static pod", daemon=True).start()
            except RuntimeError:
                self._work()
        self.wait(patience)

    def wait(self, patience: float) -> None:
        """Wait for the end of all that was added, but no longer than ``patience`` seconds."""
        with self._changed:
            if not self._late:
                self._wait(patience)

    def _wait(self, patience: float) -> None:
        mine = self._added
        self._late = not self._changed.wait_for(lambda: self._done >= mine, patience)

    def _work(self) -> None:
        while (act := self._next()) is not None:
            act()
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _next(self) -> Act | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._working = self._late = False
            return None
