"""watchdog's observers: each an inotify instance with its threads, for one watch at a time.

The kernel takes its time to close an inotify instance, some 7 ms: it waits until nobody can
look at what was watched any more. To end a watch within an instance takes microseconds. So who
stops one kubelet after the other, as a run of tests does, may keep instances for the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

__all__ = ["give_back", "kept", "take"]

_MOST_IDLE: Final = 2
"""As many as a test usually needs: its kubelet's and its plugin's."""


class _Idle:
    """The observers of this process that watch nothing; empty unless somebody keeps them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Guards the two below; not held while an observer is started or stopped.
        self.lock = threading.Lock()
        self.keepers = 0
        self.observers: list[BaseObserver] = []


_idle = _Idle()


def _of_this_process() -> _Idle:
    global _idle
    # The parent's threads are not there, and the lock may be held for ever.
    if _idle.pid != os.getpid():
        _idle = _Idle()
    return _idle


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep up to two observers that are given back, until the end of the block."""
    idle = _of_this_process()
    with idle.lock:
        idle.keepers += 1
    try:
        yield
    finally:
        if idle is _of_this_process():
            _let_go(idle)


def _let_go(idle: _Idle) -> None:
    left: list[BaseObserver] = []
    with idle.lock:
        idle.keepers -= 1
        if not idle.keepers:
            left, idle.observers = idle.observers, left
    for observer in left:
        _end(observer)


def take() -> BaseObserver:
    """An observer that watches nothing: an idle one, which runs, or a new one, which does not
    yet. An idle one may still report what happened earlier, if it watched the same directory.
    Raises OSError if there is no inotify instance left."""
    idle = _of_this_process()
    with idle.lock:
        if idle.observers:
            return idle.observers.pop()
    # Loaded with the first watch: start-up time matters to those who never watch.
    from watchdog.observers.inotify import InotifyObserver

    logging.getLogger("watchdog.observers.inotify").addFilter(_is_worth_logging)
    # Full events tell a file moved here, which is complete, from one being created.
    return InotifyObserver(generate_full_events=True)


def give_back(observer: BaseObserver) -> None:
    """Let an observer watch nothing, and end it unless it is kept. Its handlers are called no
    more after that. Not from a handler."""
    # An event that is handed out just now is waited for.
    observer.unschedule_all()
    idle = _of_this_process()
    with idle.lock:
        if idle.keepers and len(idle.observers) < _MOST_IDLE and observer.is_alive():
            idle.observers.append(observer)
            return
    _end(observer)


def _end(observer: BaseObserver) -> None:
    has_begun = observer.is_alive()
    observer.stop()
    if has_begun:
        observer.join()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Leave out that an emitter, told to stop, found an event at that moment.

    watchdog calls that an error, at each stop under load. The emitter itself logs it.
    """
    stopped = getattr(threading.current_thread(), "stopped_event", None)
    told_to_stop = stopped is not None and stopped.is_set()
    return not (told_to_stop and "queue_events() called when" in record.getMessage())
