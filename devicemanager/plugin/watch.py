"""File events of the plugin directory: they only say that it is time to look."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from devicemanager.plugin.sockets import FileIdentity

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

__all__ = ["DirectoryWatch"]

_log = logging.getLogger(__name__)

_EVENTS: list[type[FileSystemEvent]] = [FileCreatedEvent, FileDeletedEvent, FileMovedEvent]
_CONTENT_EVENTS: list[type[FileSystemEvent]] = [FileModifiedEvent, FileClosedEvent]


class _Ring(FileSystemEventHandler):
    def __init__(self, on_event: Callable[[], None]) -> None:
        self._on_event = on_event

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._on_event()


class DirectoryWatch:
    """One inotify instance for all resources of a manager.

    Without one (the host's limit is used up, the directory is not there yet) everything
    still works, only at the pace of the rechecks. With ``contents`` a file that is written
    to counts as well.
    """

    def __init__(
        self, directory: Path, on_event: Callable[[], None], *, contents: bool = False
    ) -> None:
        self._directory = directory
        self._events = _EVENTS + _CONTENT_EVENTS * contents
        self._handler = _Ring(on_event)
        self._observer: BaseObserver | None = None
        self._watched: tuple[int, int] | None = None
        self._complained = False

    def ensure(self) -> bool:
        """Watch the directory that is there now. True if a watch was newly made.

        To be called before the first look and every now and then: a directory that is
        removed and made again is another one, and its watch is a new one.
        """
        found = FileIdentity.of(self._directory)
        current = (found.device, found.inode) if found else None
        if current == self._watched:
            return False
        self.stop()
        if current is None or not self._arm():
            return False
        self._watched = current
        return True

    def stop(self) -> None:
        self._watched = None
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.join()

    def _arm(self) -> bool:
        try:
            observer = Observer()
        except OSError as error:
            return self._complain(error)
        observer.schedule(self._handler, str(self._directory), event_filter=self._events)
        try:
            observer.start()
        except OSError as error:
            observer.stop()
            return self._complain(error)
        self._observer = observer
        return True

    def _complain(self, error: OSError) -> bool:
        if not self._complained:
            self._complained = True
            _log.warning("cannot watch %s (%s): looking at it instead", self._directory, error)
        return False
