"""Write the calls of a kubelet to a file, one JSON object per line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from devicemanager.events.calls.call import call_data
from devicemanager.events.calls.log import CallLog

__all__ = ["SCHEMA", "CallsFile"]

SCHEMA = "devicemanager.call/v1"


def _open_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


class CallsFile:
    """Writer that appends every new call to a file, on a separate thread; a context manager.

    Calls never wait for the file. ``close`` returns when every recorded call is written. If
    the log drops calls before the thread reads them, a line has the number of dropped calls.
    """

    def __init__(self, path: Path, calls: CallLog, failed: Callable[[OSError], None]) -> None:
        """Create the file, or empty an existing file, and start the thread.

        Only its owner can read a new file, because responses can contain secrets. Raises OSError
        if the file cannot be opened. If the file cannot be written later, the thread calls
        ``failed`` once and ends.
        """
        self._file = os.fdopen(_open_private(path), "w", encoding="utf-8")
        self._calls = calls
        self._failed = failed
        # Before the subscription: a call in between is written, because the thread reads from here.
        self._last = calls.latest
        self._closing = False
        self._changed = threading.Event()
        self._unsubscribe = calls.subscribe(lambda _: self._changed.set())
        self._thread = threading.Thread(target=self._work, name="calls", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with self._file:
                while not self._closing:
                    self._changed.wait()
                    # Before the log is read: a call that ends meanwhile wakes the thread again.
                    self._changed.clear()
                    self._file.writelines(self._lines())
                    # Flushed each time, so that the file is complete even if the process is killed.
                    self._file.flush()
        except OSError as error:
            self._failed(error)
        finally:
            self._unsubscribe()

    def _lines(self) -> Iterator[str]:
        for call in self._calls.later(self._last):
            # The log can drop calls faster than the thread writes them. Numbers of consecutive
            # calls then differ by more than 1.
            missing = call.number - self._last - 1
            if missing:
                yield _line({"number": call.number - 1, "dropped": missing})
            yield _line(call_data(call))
            self._last = call.number

    def close(self) -> None:
        """Write the remaining calls and close the file. Idempotent."""
        # The flag first: the thread reads it only after it was woken.
        self._closing = True
        self._changed.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _line(data: dict[str, object]) -> str:
    return json.dumps({"schema": SCHEMA, **data}) + "\n"
