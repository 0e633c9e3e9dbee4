"""Telling people without flooding them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["RateLimitedWarning", "Warn", "cut"]

Warn: TypeAlias = Callable[[str], None]
"""Takes one line for people. May be called from any thread."""

_SHOWN: Final = 60


class RateLimitedWarning:
    """Passes a line on at most once in a while, and drops the others."""

    def __init__(
        self, warn: Warn, every: float = 60.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``every``: seconds between two lines."""
        self._warn = warn
        self._every = every
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next = float("-inf")

    def __call__(self, text: str) -> None:
        """Say it, unless something was said shortly before."""
        with self._lock:
            now = self._monotonic()
            if now < self._next:
                return
            self._next = now + self._every
        self._warn(text)


def cut(text: str) -> str:
    """As much as belongs into one line: an annotation may be as long as a book."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
