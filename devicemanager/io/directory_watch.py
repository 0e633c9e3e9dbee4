"""Follow a directory of files: scan it at the start, and handle each later change.

The watch starts before the scan, so no change is lost between them. Therefore a change can be
handled twice, and subclasses must tolerate this. The thread of the watch only queues changes, and
a separate thread handles them. The reason is that handling can take long, and that stopping the
watch waits for the thread of the watch.
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
    """A directory whose files are read at the start and after each change; a context manager.

    ``start`` reads all files on the caller's thread. Until ``stop``, a separate thread handles each
    change.
    """

    what: ClassVar[str]
    """The directory's purpose, for error texts and the name of the thread."""
    error: ClassVar[type[Exception]]
    """Type of the exception that ``start`` raises if the directory cannot be read or watched."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        """``report`` is called with one-line messages for the user."""
        self.directory = directory
        self._report = report
        # Changes that the watch reported. The thread of the watch must not handle them, because
        # stopping the watch would wait for the handler.
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._watch = DirectoryWatch(
            directory, lambda change: self._todo.put(partial(self._react, change))
        )
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name=self.what, daemon=True)

    @abc.abstractmethod
    def _scan(self) -> None:
        """Read all files of the directory. Raises an exception of the type ``error``, or
        OSError."""

    @abc.abstractmethod
    def _react(self, change: Change) -> None:
        """Handle one change of a file in the directory."""

    def _close(self) -> None:  # noqa: B027  # most subclasses have nothing to close
        """Release the resources of the subclass. ``stop`` calls this when the watch has ended."""

    def start(self) -> None:
        """Read all files of the directory, then handle each change of a file.

        Raises an exception of the type in the class attribute ``error`` if the directory cannot be
        read or watched.
        """
        check_directory(self.directory, self.what, self.error)
        # The watch starts before the scan, so that no change between them is lost.
        try:
            self._watch.start()
            self._scan()
            # The thread starts after the scan on the caller's thread: when ``start`` returns, all
            # files have been read.
            self._worker.start()
        except OSError as error:
            self._watch.stop()
            raise self.error(
                f"{self.what} {self.directory} cannot be watched: {error.strerror or error}"
            ) from error
        except BaseException:
            self._watch.stop()
            raise

    def stop(self) -> None:
        """Stop handling changes of the directory. Idempotent."""
        self._stopping.set()
        self._watch.stop()
        self._close()
        # None wakes the thread if it waits for a change.
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
            # An uncaught exception would end the thread without a message.
            except Exception as error:
                self._report(f"{self.what} {self.directory}: {error}")


def check_directory(directory: Path, what: str, error: type[Exception]) -> None:
    """Raise an exception of the type ``error`` if the path is not a directory.

    ``what`` names the purpose of the directory in the message.
    """
    if not directory.is_dir():
        fault = "Not a directory" if directory.exists() else "No such file or directory"
        raise error(f"{what} {directory}: {fault}")


def is_pivot(change: Change) -> bool:
    """True if the change is the atomic update of a mounted ConfigMap.

    Such an update replaces the symbolic link ``..data``.
    """
    return "..data" in (change.name, change.new_name)


def is_complete_at_once(path: Path) -> bool:
    """True if a new file is complete when it appears, because it is a symbolic or hard link.

    Any other new file is complete when its writer closes it.
    """
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
