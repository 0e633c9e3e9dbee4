"""Follow a directory of files: read it at the start and after each change.

The watch starts before the first scan, so no change in between is lost; a change can therefore
be handled twice, and subclasses must tolerate that. Changes are queued and handled on a
separate thread, not on the watch's: stopping the watch waits for its thread, and a handler may
take long.
"""

from __future__ import annotations

import abc
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from devicemanager.io.watch import Change, DirectoryWatch

__all__ = ["FollowedDirectory", "check_directory", "is_complete_at_once", "is_pivot"]

_PATIENCE = 0.5


class FollowedDirectory(abc.ABC):
    """A directory that is followed from ``start`` to ``stop``; a context manager.

    It is scanned on the caller's thread; later changes are handled on a thread of this object.
    """

    what: ClassVar[str]
    """The directory's purpose, for error texts and the name of the thread."""
    error: ClassVar[type[Exception]]
    """Raised for a directory that cannot be followed."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        """``report`` takes one line for the user."""
        self.directory = directory
        self._report = report
        # Changes that the watch reported. Its own thread must not handle them: stopping
        # the watch would wait for that.
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._watch = DirectoryWatch(
            directory, lambda change: self._todo.put(partial(self._react, change))
        )
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name=self.what, daemon=True)

    @abc.abstractmethod
    def _scan(self) -> None:
        """Read the whole directory. Raises ``error``, or OSError."""

    @abc.abstractmethod
    def _react(self, change: Change) -> None:
        """Handle a change."""

    def _close(self) -> None:  # noqa: B027  # most subclasses have nothing to close
        """End what was begun: no more changes follow."""

    def start(self) -> None:
        """Scan the directory and follow it from now on. Raises ``error``."""
        check_directory(self.directory, self.what, self.error)
        # Watched before the scan, so that no change in between is missed.
        try:
            self._watch.start()
            self._scan()
            # After the scan, on the caller's thread: the first contents are there when ``start``
            # returns.
            self._worker.start()
        except OSError as error:
            self._watch.stop()
            why = f"cannot be watched: {error.strerror or error}"
            raise self.error(f"{self.what} {self.directory} {why}") from error
        except BaseException:
            self._watch.stop()
            raise

    def stop(self) -> None:
        """Stop following. Idempotent."""
        self._stopping.set()
        self._watch.stop()
        self._close()
        # Wakes the thread, which may be waiting for a change.
        self._todo.put(None)
        if self._worker.is_alive():
            self._worker.join(_PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _work(self) -> None:
        while (do := self._todo.get()) is not None and not self._stopping.is_set():
            try:
                do()
            # An exception here would end the thread silently.
            except Exception as error:
                self._report(f"{self.what} {self.directory}: {error}")


def check_directory(directory: Path, what: str, error: type[Exception]) -> None:
    """Raise ``error``, with a one-line text, if the path is not a directory."""
    if not directory.is_dir():
        fault = "is not a directory" if directory.exists() else "does not exist"
        raise error(f"{what} {directory} {fault}")


def is_pivot(change: Change) -> bool:
    """True if the change is the atomic update of a mounted ConfigMap, which replaces ``..data``."""
    return "..data" in (change.name, change.new_name)


def is_complete_at_once(path: Path) -> bool:
    """True for a link: it is complete at once, while other new files are when their writer
    closes them."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
