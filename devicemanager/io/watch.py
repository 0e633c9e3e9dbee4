"""Changes in one directory, through inotify: the one set-up of watchdog."""

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
    """An observer that watches nothing: an idle one, which runs, or a new one, which does not
    yet. An idle one may still report what happened earlier, if it watched the same directory.
    Raises OSError if there is no inotify instance left."""
    if (idle := observers.take()) is not None:
        return idle
    # Loaded with the first watch: start-up time matters to those who never watch.
    from watchdog.observers.inotify import InotifyObserver

    logging.getLogger("watchdog.observers.inotify").addFilter(_is_worth_logging)
    # Full events tell a file moved here, which is complete, from one being created.
    return InotifyObserver(generate_full_events=True)


def _give_back(observer: BaseObserver) -> None:
    """Let an observer watch nothing, and end it unless it is kept. Its handlers are called no
    more after that. Not from a handler."""
    # An event that is handed out just now is waited for.
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
"""Idle observers. Two are as many as a test usually needs: its kubelet's and its plugin's."""


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Leave out that an emitter, told to stop, found an event at that moment.

    watchdog calls that an error, at each stop under load. The emitter itself logs it.
    """
    stopped = getattr(threading.current_thread(), "stopped_event", None)
    told_to_stop = stopped is not None and stopped.is_set()
    return not (told_to_stop and "queue_events() called when" in record.getMessage())


class ChangeKind(StrEnum):
    """What happened to a file."""

    CREATED = "created"
    MODIFIED = "modified"
    CLOSED = "closed"
    """A writer has closed it."""
    MOVED = "moved"
    DELETED = "deleted"
    ATTRIBUTES = "attrib"


@attrs.frozen
class Change:
    """One change.

    ``name`` is the file's name, ``new_name`` the one that it was moved to. Of a move into
    the directory or out of it, the name outside is empty. When the directory itself is
    deleted, both are.
    """

    kind: ChangeKind
    name: str
    new_name: str = ""


class DirectoryWatch:
    """Reports what happens to the files of one directory, without those below.

    ``on_change`` is called by a thread of the watch, one change at a time, and must not
    wait for :meth:`stop`. An event is a hint: some are lost when very many come at once.
    In a forked child nothing is watched, until it starts a watch of its own.
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
        """Watch nothing, without a word to what watched before."""
        self._pid = os.getpid()
        # Guards the two below.
        self._lock = threading.Lock()
        self._observer: BaseObserver | None = None
        self._watched: FileIdentity | None = None
        self._place = ""

    def _locked(self) -> threading.Lock:
        # The parent's threads are not there, its inotify instance is: stopping it would end
        # the parent's watch, and the lock may be held for ever.
        if os.getpid() != self._pid:
            self._reset()
        return self._lock

    def start(self) -> None:
        """Watch from now on. Raises OSError: no such directory, no inotify instance left."""
        with self._locked():
            self._start()

    def ensure(self) -> bool:
        """Watch the directory that is there now. True if a watch was newly made.

        For callers that can do without a watch, only slower: call it every now and then, since
        a directory that is removed and made again needs a new watch. The reason why there can
        be none is logged once.
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
        """Watch no longer. No change is reported after that. Stopping twice does nothing."""
        with self._locked():
            self._stop()

    def _start(self) -> None:
        # Looked at before it is watched: a directory that takes its place meanwhile differs.
        watched = FileIdentity.of(self._directory, follow_links=True)
        # Later releases of watchdog do not follow a link.
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
        if event.is_directory:
            if event.event_type != ChangeKind.DELETED or event.src_path != self._place:
                return
            # Its number may be given out again at once: ensure() must not take that for it.
            self._watched = None
            old = ""
        try:
            self._on_change(Change(ChangeKind(event.event_type), old, new))
        except Exception:
            # The thread must outlive it, or every later change would be lost.
            _log.exception("a change in %s could not be handled", self._directory)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("cannot watch %s (%s): looking at it instead", self._directory, error)


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
    """The classes of the kinds, and that of the directory's own end, which is always reported."""
    from watchdog import events

    classes = {
        ChangeKind.CREATED: events.FileCreatedEvent,
        ChangeKind.MODIFIED: events.FileModifiedEvent,
        ChangeKind.CLOSED: events.FileClosedEvent,
        ChangeKind.MOVED: events.FileMovedEvent,
        ChangeKind.DELETED: events.FileDeletedEvent,
        # Releases before 7 call a change of attributes a modification.
        ChangeKind.ATTRIBUTES: getattr(events, "FileAttribEvent", events.FileModifiedEvent),
    }
    return [events.DirDeletedEvent, *(classes[kind] for kind in sorted(kinds))]


def _name(path: bytes | str | None) -> str:
    return Path(os.fsdecode(path or "")).name
