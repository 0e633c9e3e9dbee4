"""Follows a list of the author's that may change: the devices, or the resources."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

__all__ = ["consume"]

_log = logging.getLogger(__name__)

_BACKOFF_LIMIT = 30.0

T = TypeVar("T")


def consume(
    what: str,
    give: Callable[[], Iterable[T] | Iterator[Iterable[T]]],
    take: Callable[[Iterable[T]], object],
    stopping: threading.Event,
    backoff: float,
) -> None:
    """Hand to ``take`` the list that ``give`` returns, or each that its iterator yields.

    Returns when there will be no other list, or when ``stopping`` is seen. What ``give``
    raises is logged (its traceback at debug level), and it is called again after ``backoff``
    seconds, then twice that, up to 30 s.
    """

    def log_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = f"; again in {state.next_action.sleep:.0f} s" if state.next_action else ""
        _log.error("%s failed: %s: %s%s", what, type(error).__name__, error, pause)
        _log.debug("the traceback of %s", what, exc_info=error)

    def nap(seconds: float) -> None:
        stopping.wait(seconds)

    Retrying(
        retry=retry_if_exception_type(Exception),
        wait=wait_exponential(multiplier=backoff, max=_BACKOFF_LIMIT),
        sleep=nap,
        stop=lambda _state: stopping.is_set(),
        before_sleep=log_failure,
        retry_error_callback=log_failure,
    )(_take_all, give, take, stopping)


def _take_all(
    give: Callable[[], Iterable[T] | Iterator[Iterable[T]]],
    take: Callable[[Iterable[T]], object],
    stopping: threading.Event,
) -> None:
    given = give()
    if isinstance(given, Iterator):
        try:
            while not stopping.is_set() and (listed := next(given, None)) is not None:
                take(_checked(listed))
        finally:
            # Lets a generator's own finally run now, on the thread that it ran on.
            getattr(given, "close", lambda: None)()
    else:
        take(_checked(given))


def _checked(listed: Iterable[T] | object) -> Iterable[T]:
    # A lone string would otherwise pass as a list of its letters.
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"a list is expected, not {listed!r}")
    return listed
