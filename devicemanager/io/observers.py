"""watchdog's observers: each an inotify instance with its threads, for one watch at a time.

The kernel takes its time to close an inotify instance, some 7 ms: it waits until nobody can
look at what was watched any more. To end a watch within an instance takes microseconds. So who
stops one kubelet after the other, as a run of tests does, may keep instances for the next one.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from devicemanager.io.idle_pool import IdlePool

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

__all__ = ["give_back", "kept", "take"]

_MOST_IDLE: Final = 2
"""As many as a test usually needs: its kubelet's and its plugin's."""


def kept() -> AbstractContextManager[None]:
    """Keep up to two observers that are given back, until the end of the block."""
    return _idle.kept()


def take() -> BaseObserver:
    """An observer that watches nothing: an idle one, which runs, or a new one, which does not
    yet. An idle one may still report what happened earlier, if it watched the same directory.
    Raises OSError if there is no inotify instance left."""
    if (idle := _idle.take()) is not None:
        return idle
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
    if observer.is_alive():
        _idle.give_back(observer)
    else:
        _end(observer)


def _end(observer: BaseObserver) -> None:
    has_begun = observer.is_alive()
    observer.stop()
    if has_begun:
        observer.join()


_idle: IdlePool[BaseObserver] = IdlePool(_MOST_IDLE, _end)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Leave out that an emitter, told to stop, found an event at that moment.

    watchdog calls that an error, at each stop under load. The emitter itself logs it.
    """
    stopped = getattr(threading.current_thread(), "stopped_event", None)
    told_to_stop = stopped is not None and stopped.is_set()
    return not (told_to_stop and "queue_events() called when" in record.getMessage())
