"""Find the lines of a program's output that say why it exited."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

__all__ = ["crash_line", "without_registers", "without_stacks"]

# Go prints stacks for some fatal log messages, too. So only the line of the crash counts.
_CRASH = re.compile(
    r"^(panic: |fatal error: |unexpected fault address |thread '.*' (\(\d+\) )?panicked at )"
)
_LONGEST = 200
_REGISTER = re.compile(r"(r\w{1,5}|[cfg]s|lr|sp|pc|fault) +0x[0-9a-f]+$")
"""Registers in a stack dump of Go, on amd64 and arm64."""
_STACK = re.compile(rf"goroutine \d+ |(SIG[A-Z]+|PC)[:=]|{_REGISTER.pattern}")
"""Headers and registers in a stack dump of Go."""


def crash_line(lines: Iterable[str]) -> str:
    """Return the first line that reports a crash of a Go or Rust program, cut to 200 characters.
    Empty if no line reports a crash."""
    return next((line[:_LONGEST] for line in lines if _CRASH.match(line)), "")


def without_registers(lines: Iterable[str]) -> list[str]:
    """Return the lines without the CPU registers that Go prints at the end of a stack dump.

    Registers say nothing about a plugin. A report shows only the last lines, and the stacks of the
    goroutines are more useful there.
    """
    return [line for line in lines if not _REGISTER.match(line)]


def without_stacks(lines: Iterable[str]) -> list[str]:
    """Return the lines without empty lines and without the stacks that Go prints.

    Some libraries print stacks after the message of a fatal error. Then the last lines of the
    output do not show the error.
    """
    known = list(lines)
    # A frame has two lines: the function, and its file, indented by a tab.
    return [
        line
        for line, following in itertools.pairwise([*known, ""])
        if line.strip() and not any(each.startswith("\t") for each in (line, following))
        if not _STACK.match(line)
    ]
