"""Shorten the tracebacks of failed tests: hide the frames of this project's own modules.

The text of an error such as a timed-out wait says everything. Frames of this project between that
text and the failing line of the test would only be in the way. ``--full-trace`` shows them.
Unexpected errors, which can be bugs of this project, always show them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.core.errors import InternalError
from devicemanager.io.own_packages import NAMES, PREFIX

__all__ = ["hide_our_frames"]

_NAMES = ("devicemanager", *NAMES)
_OURS = (*(f"{Path(__file__).parents[2] / name}/" for name in _NAMES), "<attrs generated")
_MODULES = tuple(f"{prefix}{name}." for prefix in ("", PREFIX) for name in _NAMES)


def hide_our_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Hide the frames of this project, with pytest's ``__tracebackhide__`` in each module."""
    for entry in excinfo.traceback:
        if str(entry.path).startswith(_OURS):
            # pytest reads this name from a frame's locals or globals, and calls it with the error.
            entry.frame.f_globals["__tracebackhide__"] = _is_on_purpose


def _is_on_purpose(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """True for an error that this project raises on purpose."""
    # Subclasses of users are not ours: their errors show all frames.
    kind = type(excinfo.value)
    return kind.__module__.startswith(_MODULES) and not issubclass(kind, InternalError)
