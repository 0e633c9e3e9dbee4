"""Watch one directory for changes, through inotify: the only set-up of watchdog.

Theory of operation. watchdog's *observer* is an inotify instance with its threads. Closing an
instance takes the kernel some 7 ms, because it waits for everything that may still use the
watch; ending a watch within an instance takes microseconds. So each ``DirectoryWatch`` has a
separate observer, but takes it from the pool ``observers`` and gives it back. A test session
that starts hundreds of kubelets enables that pool; otherwise it is empty, and observers are
closed.

An event is only a hint to read the directory. Several races make it unreliable:

* The kernel drops events if too many are pending.
* An idle observer can still deliver events of its previous watch of the same directory.
* The watched directory can be replaced by another one of the same name. ``ensure`` compares file
  identities and watches the new one. If a directory is deleted, its inode number can be reused at
  once, so its deletion also clears the identity.
* After a fork, the child has the parent's inotify instance, but not its threads. It must not
  touch the instance, because that would end the parent's watch. ``_locked`` notices the fork and
  starts from scratch.
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
    """Take an idle observer, which runs, or create one, which does not run yet.

    An idle one can still report earlier changes if it watched the same directory. Raises
    OSError if no inotify instance is left.
    """
    if (idle := observers.take()) is not None:
        return idle
    # Imported here: start-up time matters to processes that never watch.
    from watchdog.observers.inotify import InotifyObserver

    logging.getLogger("watchdog.observers.inotify").addFilter(_is_worth_logging)
    # Full events distinguish a file moved here, which is complete, from a file being created.
    return InotifyObserver(generate_full_events=True)


def _give_back(observer: BaseObserver) -> None:
    """End the observer's watch; then pool or close it. Must not be called by a handler.

    Its handlers are not called after that.
    """
    # Waits for an event that is being delivered.
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
"""Idle observers. A typical test uses two: one of its kubelet, one of its plugin."""


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for an error that watchdog logs at nearly every stop under load: an event came when
    the emitter was already stopping."""
    stopped = getattr(threading.current_thread(), "stopped_event", None)
    is_stopping = stopped is not None and stopped.is_set()
    return not (is_stopping and "queue_events() called when" in record.getMessage())


class ChangeKind(StrEnum):
    """Kind of a change."""

    CREATED = "created"
    MODIFIED = "modified"
    CLOSED = "closed"
    """A writer has closed it."""
    MOVED = "moved"
    DELETED = "deleted"
    ATTRIBUTES = "attrib"


@attrs.frozen
class Change:
    """A change of one file.

    ``name`` is the file's name, ``new_name`` the name it was moved to. For a move into or out
    of the directory, the name outside is empty. If the directory itself is deleted, both are
    empty.
    """

    kind: ChangeKind
    name: str
    new_name: str = ""


class DirectoryWatch:
    """Watch on the files in one directory, without subdirectories; thread-safe.

    ``on_change`` is called on a thread of the watch, one change at a time, and must not call
    :meth:`stop` or wait for it. A forked child watches nothing until it starts its own watch.
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
        """Forget the current watch without ending it."""
        self._pid = os.getpid()
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._observer: BaseObserver | None = None
        self._watched: FileIdentity | None = None
        self._place = ""

    def _locked(self) -> threading.Lock:
        # In a forked child the parent's lock may stay locked, and stopping its observer
        # would end the parent's watch.
        if os.getpid() != self._pid:
            self._reset()
        return self._lock

    def start(self) -> None:
        """Start watching. Raises OSError if there is no such directory or no inotify instance
        left."""
        with self._locked():
            self._start()

    def ensure(self) -> bool:
        """Watch the directory that exists now. True if a new watch was started.

        For callers that also work without a watch, only slower: call it now and then, because a
        directory that was deleted and created again needs a new watch. A failure is logged
        once.
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
        """Stop watching. No change is reported after that. Idempotent."""
        with self._locked():
            self._stop()

    def _start(self) -> None:
        # Read before the watch starts: if the directory is replaced in between, ensure() notices.
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
        # Only the watched directory itself is of interest, not those inside it.
        if event.is_directory:
            if event.event_type != ChangeKind.DELETED or event.src_path != self._place:
                return
            # Its inode number can be reused at once; ensure() must not mistake the
            # new directory for it.
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
    """Return the event classes of the kinds, and always that of the directory's deletion."""
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
