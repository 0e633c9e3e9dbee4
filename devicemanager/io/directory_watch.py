"""A directory of files that is read at first and after each change."""

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
    """Follows a directory from ``start`` to ``stop``; a context manager.

    It is read by the caller's thread at the start, and by one of ours afterwards.
    """

    what: ClassVar[str]
    """What is followed, in texts and as the name of the thread."""
    error: ClassVar[type[Exception]]
    """Raised for a directory that cannot be followed."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        """``report`` takes one line for the user."""
        self.directory = directory
        self._report = report
        # What the watch told. Its own thread must not wait for what is done about it: stopping
        # the watch would wait for that, too.
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._watch = DirectoryWatch(
            directory, lambda change: self._todo.put(partial(self._react, change))
        )
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name=self.what, daemon=True)

    @abc.abstractmethod
    def _scan(self) -> None:
        """Read all of it. Raises ``error``, or OSError."""

    @abc.abstractmethod
    def _react(self, change: Change) -> None:
        """Read what has changed."""

    def _close(self) -> None:  # noqa: B027  # most have nothing to close
        """No change comes any more: end what was begun."""

    def start(self) -> None:
        """Read what is there and follow it from now on. Raises ``error``."""
        check_directory(self.directory, self.what, self.error)
        # Watched before the scan, so that nothing is missed in between.
        try:
            self._watch.start()
            self._scan()
            self._worker.start()
        except OSError as error:
            self._watch.stop()
            why = f"cannot be watched: {error.strerror or error}"
            raise self.error(f"{self.what} {self.directory} {why}") from error
        except BaseException:
            self._watch.stop()
            raise

    def stop(self) -> None:
        """Follow it no longer. Stopping twice does nothing."""
        self._stopping.set()
        self._watch.stop()
        self._close()
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
            # An error here would end the watch without a word.
            except Exception as error:
                self._report(f"{self.what} {self.directory}: {error}")


def check_directory(directory: Path, what: str, error: type[Exception]) -> None:
    """Raises the error, with one line, for what is no directory."""
    if not directory.is_dir():
        fault = "is not a directory" if directory.exists() else "does not exist"
        raise error(f"{what} {directory} {fault}")


def is_pivot(change: Change) -> bool:
    """Whether it is the name through which a mounted ConfigMap turns all its files over at
    once."""
    return "..data" in (change.name, change.new_name)


def is_complete_at_once(path: Path) -> bool:
    """A link comes complete; of any other new file the writer's close will be told."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
