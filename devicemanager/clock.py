"""Time, as something that can be handed in.

``SystemClock`` is the machine's; ``ManualClock`` stands still until a test turns it.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two readings, both in seconds."""

    def monotonic(self) -> float:
        """Never goes back; for intervals such as the grace period."""

    def time(self) -> float:
        """Since the epoch; for people."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class ManualClock:
    """A clock that a test turns by hand. Safe to read from any thread."""

    def __init__(self, start: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._now = start

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        with self._lock:
            self._now += seconds

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now
