"""Reads the author's lists, which may change: of devices, or of resources."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from devicemanager.io.retry import retry
from devicemanager.plugin.hooks import call_hook, error_text

__all__ = ["consume"]

_log = logging.getLogger(__name__)

_BACKOFF_LIMIT = 30.0
_END = object()

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

    def log(error: BaseException, outlook: str) -> None:
        _log.error("%s failed: %s%s", what, error_text(error), outlook)
        _log.debug("the traceback of %s", what, exc_info=error)

    try:
        retry(
            lambda: call_hook(lambda: _take_all(what, give, take, stopping)),
            Exception,
            sleep=stopping.wait,
            first_wait=backoff,
            longest_wait=_BACKOFF_LIMIT,
            stopping=stopping.is_set,
            report=lambda error, pause: log(error, f"; again in {pause:.0f} s"),
        )
    except Exception as error:
        log(error, "")


def _take_all(
    what: str,
    give: Callable[[], Iterable[T] | Iterator[Iterable[T]]],
    take: Callable[[Iterable[T]], object],
    stopping: threading.Event,
) -> None:
    given = give()
    if isinstance(given, Iterator):
        lists = 0
        try:
            while not stopping.is_set() and (listed := next(given, _END)) is not _END:
                take(_checked(listed))
                lists += 1
        finally:
            # Runs a generator's own finally now, on the thread that it ran on.
            getattr(given, "close", lambda: None)()
        if not lists and not stopping.is_set():
            _log.warning("%s ended without a list", what)
    else:
        take(_checked(given))


def _checked(listed: Iterable[T] | object) -> Iterable[T]:
    # Reject a bare string, which would pass as a list of its letters.
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"a list is expected, not {listed!r}")
    return listed
