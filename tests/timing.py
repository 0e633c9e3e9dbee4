"""A clock that tests set, and waits for changes that nothing reports."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Clock:
    """A function that returns ``now``, in place of ``time.monotonic``."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def wait_until(condition: Callable[[], T], seconds: float = 50) -> T:
    """Poll until ``condition`` returns a true value; return that value.

    Use it only if there is no event to wait for, as with the state of another process.
    """
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"still false after {seconds:g} s"
        time.sleep(0.01)
    return result
