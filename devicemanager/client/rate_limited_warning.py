"""Warnings that are shown to the user, at a limited rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["RateLimitedWarning", "Warn", "truncate"]

Warn: TypeAlias = Callable[[str], None]
"""Function that shows one line to the user. It must be thread-safe."""

_SHOWN: Final = 60


class RateLimitedWarning:
    """Function that shows at most one warning per interval and drops the others."""

    def __init__(
        self, warn: Warn, every: float = 60.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Create the function; ``warn`` shows a line, ``every`` is the interval in seconds."""
        self._warn = warn
        self._every = every
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next = float("-inf")

    def __call__(self, text: str) -> None:
        """Show a line. Drop it if the last shown line is less than ``every`` seconds old."""
        with self._lock:
            now = self._monotonic()
            if now < self._next:
                return
            self._next = now + self._every
        # Called without the lock, so that a slow ``warn`` does not block the threads whose lines
        # are dropped.
        self._warn(text)


def truncate(text: str) -> str:
    """Shorten a text to 60 characters, so that it fits into a message.

    A value from the API server, such as an annotation, can have 256 KiB.
    """
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
