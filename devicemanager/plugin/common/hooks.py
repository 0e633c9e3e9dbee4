"""Call the methods that authors of plugins and drivers write.

If a method raises SystemExit, the caller gets ``HookEnded`` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["HookEnded", "call_hook", "error_text"]

T = TypeVar("T")


class HookEnded(Exception):
    """Error for an author's method that raised SystemExit, or another BaseException that is not
    an Exception."""


def call_hook(hook: Callable[[], T]) -> T:
    """Call ``hook`` and return its result.

    If it raises a BaseException that is not an Exception, raise HookEnded instead. Examples are
    SystemExit, and the exception with which pytest ends a test. Such exceptions would silently end
    a thread of the framework, and the kubelet would wait forever for a response.
    """
    try:
        return hook()
    # Raise Exceptions unchanged: the caller handles some of them, such as DeviceRejected.
    except Exception:
        raise
    except BaseException as error:
        raise HookEnded(error_text(error)) from error


def error_text(error: BaseException) -> str:
    """Return the error's type and text. Without the type, a text such as KeyError's is unclear."""
    if isinstance(error, HookEnded):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
