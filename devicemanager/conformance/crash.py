"""Find the line of a plugin's output that says that it crashed."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["crash_line"]

# Go prints stacks for some fatal log messages, too. So only the line of the crash counts.
_CRASH = re.compile(
    r"^(panic: |fatal error: |unexpected fault address |thread '.*' (\(\d+\) )?panicked at )"
)
_LONGEST = 200


def crash_line(lines: Iterable[str]) -> str:
    """Return the first line of a panic of Go or Rust in a plugin's output; empty if there is
    none."""
    return next((line[:_LONGEST] for line in lines if _CRASH.match(line)), "")
