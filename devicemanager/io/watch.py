"""Watch one directory for changes, through inotify; the only module that uses watchdog.

Theory of operation. watchdog's *observer* is an inotify instance with its threads. Closing an
instance takes about 7 ms, because the kernel waits for all users of its watches. Removing a watch
from an instance takes microseconds. Therefore each ``DirectoryWatch`` takes an observer from the
pool ``observers`` and gives it back. A test session that starts hundreds of kubelets enables the
pool. While the pool is disabled, it is empty, and observers that are given back are closed.

An event is only a hint to read the directory. Events are unreliable for several reasons:

* The kernel drops events if too many are pending.
* An observer from the pool can still deliver events of its previous watch of the same directory.
* The watched directory can be replaced by another directory with the same name. ``ensure``
  compares file identities and watches the new directory. The inode number of a deleted directory
  can be reused immediately, so a deletion also clears the identity.
* After a fork, the child process has its parent's inotify instance, but not the threads. It must
  not use the instance, because that would end the parent's watch. ``_locked`` detects the fork
  and forgets the instance.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from devicemanager.io.idle_pool import IdlePool
from podresources.sockets import FileIdentity

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver

_log = logging.getLogger(__name__)


def _take() -> BaseObserver:
    """Return a running observer from the pool, or a new observer that must be started.

    An observer from the pool can still report earlier changes if it watched the same directory.
    Raises OSError if no inotify instance is left.
    """
    if (idle := observers.take()) is not None:
        return idle
    # Imported here to keep start-up fast for processes that watch no directory.
    from watchdog.observers.inotify import InotifyObserver

    logging.getLogger("watchdog.observers.inotify").addFilter(_is_worth_logging)
    # Full events distinguish a file that was moved here, which is complete, from a new file.
    return InotifyObserver(generate_full_events=True)


def _give_back(observer: BaseObserver) -> None:
    """Remove all watches of an observer, and put it into the pool or close it.

    Afterwards the handlers of the watches are not called any more. A handler must not call this
    function.
    """
    # This waits until a handler that is running has returned.
    observer.unschedule_all()
    if observer.is_alive():
        observers.give_back(observer)
    else:
        _end(observer)


def _end(observer: BaseObserver) -> None:
    has_begun = observer.is_alive()
    observer.stop()
    if has_begun:
        observer.join()


observers: Final[IdlePool[BaseObserver]] = IdlePool(2, _end)
"""Pool of at most two idle observers. An observer is an inotify instance with its threads. A
typical test uses two observers: one for its kubelet and one for its plugin."""


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """True unless the log record is a harmless error of watchdog.

    Under load, watchdog logs this error at nearly every stop, because an event arrives while its
    thread is stopping.
    """
    stopped = getattr(threading.current_thread(), "stopped_event", None)
    is_stopping = stopped is not None and stopped.is_set()
    return not (is_stopping and "queue_events() called when" in record.getMessage())


class ChangeKind(StrEnum):
    """Kind of a change to a file."""

    CREATED = "created"
    MODIFIED = "modified"
    CLOSED = "closed"
    """A writer has closed the file."""
    MOVED = "moved"
    DELETED = "deleted"
    ATTRIBUTES = "attrib"


@attrs.frozen
class Change:
    """A change of one file in a watched directory.

    ``name`` is the file's name. If the file was moved, ``name`` is the name before the move, and
    ``new_name`` the name after it. ``name`` is empty for a file from another directory, and
    ``new_name`` for a file that has left the directory. If the directory itself is deleted, both
    names are empty.
    """

    kind: ChangeKind
    name: str
    new_name: str = ""


class DirectoryWatch:
    """Watch on the files in one directory, without subdirectories; thread-safe.

    ``on_change`` is called on a thread of the watch, one change at a time. The callback must not
    call :meth:`stop`, or wait for another thread that calls :meth:`stop`. A forked child process
    has no watch until it calls :meth:`start`.
    """

    def __init__(
        self,
        directory: Path,
        on_change: Callable[[Change], object],
        kinds: Collection[ChangeKind] = tuple(ChangeKind),
    ) -> None:
        self._directory = directory
        self._on_change = on_change
        self._kinds = frozenset(kinds)
        self._complained = False
        self._reset()

    def _reset(self) -> None:
        """Set all fields as if no watch was started, without stopping the present one."""
        self._pid = os.getpid()
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._observer: BaseObserver | None = None
        self._watched: FileIdentity | None = None
        self._place = ""

    def _locked(self) -> threading.Lock:
        # In a forked child process, the parent's lock can stay locked, and stopping the parent's
        # observer would end the parent's watch.
        if os.getpid() != self._pid:
            self._reset()
        return self._lock

    def start(self) -> None:
        """Start watching the directory.

        Raises OSError if the directory does not exist or no inotify instance is left.
        """
        with self._locked():
            self._start()

    def ensure(self) -> bool:
        """Start a watch if the directory exists and is not watched yet.

        Returns True if this call started a watch. Call this method repeatedly, because a directory
        that was deleted and created again needs a new watch. A failure is logged once and not
        raised: without a watch, the caller must still work, but may be slower.
        """
        with self._locked():
            current = FileIdentity.of(self._directory, follow_links=True)
            if current == self._watched:
                return False
            self._stop()
            if current is None:
                return False
            try:
                self._start()
            except OSError as error:
                self._complain(error)
                return False
            return True

    def stop(self) -> None:
        """Stop watching the directory; no change is reported afterwards. Idempotent."""
        with self._locked():
            self._stop()

    def _start(self) -> None:
        # The identity is read before the watch starts, so that ensure() detects a directory that
        # is replaced between the two.
        watched = FileIdentity.of(self._directory, follow_links=True)
        # Newer releases of watchdog do not follow symbolic links.
        self._place = os.path.realpath(self._directory)
        observer = _take()
        try:
            observer.schedule(
                _handler_class()(self._report), self._place, event_filter=_filter(self._kinds)
            )
            if not observer.is_alive():
                observer.start()
        except BaseException:
            _give_back(observer)
            raise
        self._observer, self._watched = observer, watched

    def _stop(self) -> None:
        self._watched = None
        observer, self._observer = self._observer, None
        if observer is not None:
            _give_back(observer)

    def _report(self, event: FileSystemEvent) -> None:
        old, new = _name(event.src_path), _name(event.dest_path)
        # Events about subdirectories are ignored; of the watched directory, only its deletion
        # matters.
        if event.is_directory:
            if event.event_type != ChangeKind.DELETED or event.src_path != self._place:
                return
            # The inode number can be reused immediately; ensure() must not take a new directory
            # with this number for the deleted one.
            self._watched = None
            old = ""
        try:
            self._on_change(Change(ChangeKind(event.event_type), old, new))
        except Exception:
            # An exception would end the thread, and every later change would be lost.
            _log.exception("failed to handle a change in %s", self._directory)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("cannot watch %s (%s): polling it instead", self._directory, error)


@cache
def _handler_class() -> Callable[[Callable[[FileSystemEvent], None]], FileSystemEventHandler]:
    from watchdog.events import FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def __init__(self, report: Callable[[FileSystemEvent], None]) -> None:
            self._report = report

        def on_any_event(self, event: FileSystemEvent) -> None:
            self._report(event)

    return Handler


def _filter(kinds: Collection[ChangeKind]) -> list[type[FileSystemEvent]]:
    """Return watchdog's event classes for kinds of changes, and the class for the deletion of a
    directory."""
    from watchdog import events

    classes = {
        ChangeKind.CREATED: events.FileCreatedEvent,
        ChangeKind.MODIFIED: events.FileModifiedEvent,
        ChangeKind.CLOSED: events.FileClosedEvent,
        ChangeKind.MOVED: events.FileMovedEvent,
        ChangeKind.DELETED: events.FileDeletedEvent,
        # Releases before 7 report a change of attributes as a modification.
        ChangeKind.ATTRIBUTES: getattr(events, "FileAttribEvent", events.FileModifiedEvent),
    }
    return [events.DirDeletedEvent, *(classes[kind] for kind in sorted(kinds))]


def _name(path: bytes | str | None) -> str:
    return Path(os.fsdecode(path or "")).name
