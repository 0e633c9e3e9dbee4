"""Limits for one input: processor time and memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import attrs

Run = Callable[[bytes], None]
"""Reads an input. Whatever it raises is a finding."""


class TooMuch(Exception):
    """An input took more than it may; the text says of what."""


def peak() -> float:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1_000_000


@attrs.frozen
class Guard:
    """Runs inputs, and raises TooMuch where one takes more than it may."""

    run: Run
    seconds: float = 1.0
    """Of the processor, for one input."""
    memory: float = 100.0
    """How many MB the highest peak so far may rise by one input."""

    def __call__(self, data: bytes) -> None:
        before, begin = peak(), time.process_time()
        self.run(data)
        seconds, memory = time.process_time() - begin, peak() - before
        if seconds > self.seconds:
            raise TooMuch(f"took {seconds:.2f} s for {len(data)} bytes")
        if memory > self.memory:
            raise TooMuch(f"took {memory:.0f} MB for {len(data)} bytes")
