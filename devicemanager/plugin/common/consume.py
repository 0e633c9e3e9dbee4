"""Read the lists of devices or resource names that an author's method returns or yields."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from devicemanager.io.retry import retry
from devicemanager.plugin.common.hooks import call_hook, error_text

__all__ = ["consume"]

_log = logging.getLogger(__name__)

_BACKOFF_LIMIT = 30.0
_END = object()

T = TypeVar("T")


def consume(
    name: str,
    produce: Callable[[], Iterable[T] | Iterator[Iterable[T]]],
    publish: Callable[[Iterable[T]], object],
    stopping: threading.Event,
    backoff: float,
) -> None:
    """Publish the list that ``produce`` returns. For an iterator, publish each list it yields.

    Return after the last list, or when ``stopping`` is set. If ``produce`` raises, log the error
    (its traceback at debug level) and call ``produce`` again after ``backoff`` seconds. The pause
    doubles with each further error, up to 30 s. ``name`` identifies the method in the log.
    """

    def log(error: BaseException, outlook: str) -> None:
        _log.error("%s failed: %s%s", name, error_text(error), outlook)
        _log.debug("traceback of %s", name, exc_info=error)

    try:
        retry(
            lambda: call_hook(lambda: _publish_all(name, produce, publish, stopping)),
            # Returns as soon as `stopping` is set, also during a pause.
            Exception,
            sleep=stopping.wait,
            first_wait=backoff,
            longest_wait=_BACKOFF_LIMIT,
            stopping=stopping.is_set,
            report=lambda error, pause: log(error, f"; retrying in {pause:.0f} s"),
        )
    except Exception as error:
        log(error, "")


def _publish_all(
    name: str,
    produce: Callable[[], Iterable[T] | Iterator[Iterable[T]]],
    publish: Callable[[Iterable[T]], object],
    stopping: threading.Event,
) -> None:
    # An Iterator, such as a generator, yields lists; any other Iterable is one list. An Iterator
    # of IDs is a mistake, which `_checked` reports: a string is not a list.
    produced = produce()
    if isinstance(produced, Iterator):
        lists = 0
        try:
            while not stopping.is_set() and (listed := next(produced, _END)) is not _END:
                publish(_checked(listed))
                lists += 1
        finally:
            # Run the `finally` of a generator now, on the thread that the generator ran on.
            getattr(produced, "close", lambda: None)()
        if not lists and not stopping.is_set():
            _log.warning("%s ended without a list", name)
    else:
        publish(_checked(produced))


def _checked(listed: Iterable[T] | object) -> Iterable[T]:
    # Reject a string, which would pass as a list of letters.
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"invalid list {listed!r}: expected a list, tuple or set")
    return listed
