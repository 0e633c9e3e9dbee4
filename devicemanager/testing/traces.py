"""Shorten the tracebacks of failed tests by hiding the frames of this project's modules.

The text of an expected error, such as a timed-out wait, is sufficient. So only the failing line of
the test is shown, without frames of this project. ``--full-trace`` shows all frames. Unexpected
errors, which can be bugs of this project, always show all frames.
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
    """Hide the frames of this project from a traceback of an expected error."""
    for entry in excinfo.traceback:
        if str(entry.path).startswith(_OURS):
            # pytest reads this name from a frame's locals or globals, and calls it with the error.
            entry.frame.f_globals["__tracebackhide__"] = _is_on_purpose


def _is_on_purpose(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """True for an error that this project raises on purpose."""
    # Errors of classes that users derive show all frames.
    kind = type(excinfo.value)
    return kind.__module__.startswith(_MODULES) and not issubclass(kind, InternalError)
