"""Warnings for people, at a limited rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["RateLimitedWarning", "Warn", "truncate"]

Warn: TypeAlias = Callable[[str], None]
"""Shows one line to the user. Must be thread-safe."""

_SHOWN: Final = 60


class RateLimitedWarning:
    """A ``Warn`` that passes on at most one line per interval and drops the others."""

    def __init__(
        self, warn: Warn, every: float = 60.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``every``: the interval in seconds."""
        self._warn = warn
        self._every = every
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next = float("-inf")

    def __call__(self, text: str) -> None:
        """Show a line, unless another one was shown during the interval."""
        with self._lock:
            now = self._monotonic()
            if now < self._next:
                return
            self._next = now + self._every
        self._warn(text)


def truncate(text: str) -> str:
    """Shorten a text for use in one line: an annotation can have 256 KiB."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
