"""What a failed test shows of an error that we raise on purpose: the test's own lines.

A wait that ends in vain, or a request that cannot be met, says all there is to say in its text.
The functions of ours that it came through would stand between that and the line of the test
that the reader looks for. ``--full-trace`` shows them, and an error that nobody raised on
purpose shows them anyway.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.core.errors import InternalError
from devicemanager.io.own_packages import NAMES

__all__ = ["hide_our_frames"]

_NAMES = ("devicemanager", *NAMES)
_OURS = (*(f"{Path(__file__).parents[2] / name}/" for name in _NAMES), "<attrs generated")
_MODULES = tuple(f"{private}{name}." for private in ("", "_devicemanager_") for name in _NAMES)


def hide_our_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Have pytest leave them out, in the way in which it asks each frame's module."""
    for entry in excinfo.traceback:
        if str(entry.path).startswith(_OURS):
            entry.frame.f_globals["__tracebackhide__"] = _is_on_purpose


def _is_on_purpose(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether it is an error of ours whose text is all there is to say."""
    kind = type(excinfo.value)
    return kind.__module__.startswith(_MODULES) and not issubclass(kind, InternalError)
