"""How far a long piece of work is: a bar on standard error, or a line now and then."""

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

_SHORTEST = 0.1
"""Seconds between two updates of a bar."""
_LINES = 30.0
"""Seconds between two lines where there is no terminal."""


class Work:
    """One piece of work, from entering to leaving. May be told of from any thread.

    What is printed on standard output meanwhile stands above the bar.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        stream: IO[str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``what`` names it in one or two words, ``total`` is how many steps it has, if that
        is known. ``stream`` is standard error if left out."""
        self._what = what
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._now = now
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._done = 0
        self._doing = ""
        self._begun = False
        self._begin = self._told = now()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        self._begin = self._told = self._now()
        if self._stream is not None and self._stream.isatty():
            self._bar = _bar(self._what, self._total, self._stream)
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
        """So many steps are done; ``doing`` says what comes now, or came last."""
        with self._lock:
            self._done += steps
            self._doing = doing or self._doing
            now = self._now()
            if now - self._told < (_LINES if self._bar is None else _SHORTEST):
                return
            self._told = now
            self._tell(now)

    def begin(self, doing: str) -> None:
        """The next step begins; the one before, if there was one, is done."""
        with self._lock:
            is_first, self._begun = not self._begun, True
        self.advance(0 if is_first else 1, doing)

    def note(self, text: str) -> None:
        """What takes its time while no step is done, at once."""
        with self._lock:
            if self._bar is not None:
                self._doing = text
                self._tell(self._now())
            elif self._stream is not None:
                print(f"{self._what}: {text}", file=self._stream, flush=True)

    def print(self, line: str, style: str = "") -> None:
        """A line on standard output, in a style if that is a terminal."""
        from rich.console import Console
        from rich.text import Text

        if self._bar is not None and sys.stdout.isatty():
            # Both are the same terminal: the bar makes way.
            self._bar[0].console.print(Text(line, style=style))
        elif sys.stdout.isatty():
            Console(highlight=False).print(Text(line, style=style))
        else:
            print(line, flush=True)

    def tracked(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each of which is a step."""
        for item in items:
            yield item
            self.advance()

    def _tell(self, now: float) -> None:
        if self._bar is not None:
            from devicemanager.observe.terminal.text import safe

            bar, task = self._bar
            bar.update(task, completed=self._done, doing=safe(self._doing, 60))
        elif self._stream is not None:
            of = f" of {self._total}" if self._total is not None else ""
            text = f"{self._what}: {self._done}{of} after {now - self._begin:.0f} s"
            print(text, file=self._stream, flush=True)


def _bar(what: str, total: int | None, stream: IO[str]) -> tuple[Progress, TaskID]:
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
            """A program that is killed could not show it again, so it is never hidden."""
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
        # Only what goes to the same terminal: a file gets what is printed to it.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        redirect_stderr=stream is sys.stderr,
        refresh_per_second=5,
    )
    return progress, progress.add_task(what, total=total, doing="")
