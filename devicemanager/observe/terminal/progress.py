"""Progress of long work on standard error: a bar on a terminal, otherwise one line every 30 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Work"]

T = TypeVar("T")

# Seconds between two updates of a bar.
_SHORTEST = 0.1
# Seconds between two lines if standard error is not a terminal.
_LINES = 30.0


class Work:
    """Progress of one task. Use it as a context manager. Thread-safe.

    Lines printed with ``print`` appear above the progress bar.
    """

    def __init__(
        self,
        title: str,
        total: int | None = None,
        *,
        stream: IO[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the progress without showing it. ``title`` names the task in one or two words.
        ``total`` is the number of steps, None if unknown. ``stream`` defaults to standard error."""
        self._title = title
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._done = 0
        self._doing = ""
        self._begun = False
        self._begin = self._reported = now()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        self._begin = self._reported = self._now()
        # None if the process was started without a standard error.
        if self._stream is not None and self._stream.isatty():
            self._bar = _bar(self._title, self._total, self._stream)
            self._bar[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def advance(self, steps: int = 1, doing: str = "") -> None:
        """Count finished steps. ``doing`` describes the current or the last step."""
        with self._lock:
            self._done += steps
            self._doing = doing or self._doing
            now = self._now()
            if now - self._reported < (_LINES if self._bar is None else _SHORTEST):
                return
            self._reported = now
            self._report(now)

    def begin(self, doing: str) -> None:
        """Begin the next step. The previous step, if any, counts as finished."""
        with self._lock:
            is_first, self._begun = not self._begun, True
        # Outside the lock, because ``advance`` takes it and the lock is not reentrant.
        self.advance(0 if is_first else 1, doing)

    def note(self, text: str) -> None:
        """Show immediately what the task waits for, even if no step has finished."""
        with self._lock:
            if self._bar is not None:
                self._doing = text
                self._report(self._now())
            elif self._stream is not None:
                print(f"{self._title}: {text}", file=self._stream, flush=True)

    def print(self, line: str, style: str = "") -> None:
        """Print a line on standard output, with a style if standard output is a terminal."""
        if not sys.stdout.isatty():
            print(line, flush=True)
            return
        # Imported here, as in ``_bar``, so that ``rich`` is loaded only for a terminal.
        from rich.console import Console
        from rich.text import Text

        # The bar is on the same terminal, so its console must print the line above the bar.
        console = Console(highlight=False) if self._bar is None else self._bar[0].console
        console.print(Text(line, style=style))

    def tracked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and count each item as a finished step."""
        for item in items:
            yield item
            self.advance()

    def _report(self, now: float) -> None:
        if self._bar is not None:
            from devicemanager.observe.terminal.text import safe

            bar, task = self._bar
            bar.update(task, completed=self._done, doing=safe(self._doing, 60))
        elif self._stream is not None:
            of = f" of {self._total}" if self._total is not None else ""
            text = f"{self._title}: {self._done}{of} after {now - self._begin:.0f} s"
            print(text, file=self._stream, flush=True)


def _bar(title: str, total: int | None, stream: IO[str]) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class QuietConsole(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Do nothing and return False. A hidden cursor would stay hidden if the program is
            killed."""
            return False

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}", markup=False, style="dim"),
        console=QuietConsole(file=stream),
        transient=True,
        # Only output to the same terminal would damage the bar. Output to a file is unchanged.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        redirect_stderr=stream is sys.stderr,
        refresh_per_second=5,
    )
    return progress, progress.add_task(title, total=total, doing="")
