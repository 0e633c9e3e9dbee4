"""Call an author's methods safely: everything that they raise becomes an Exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["HookEnded", "call_hook", "error_text"]

T = TypeVar("T")


class HookEnded(Exception):
    """An author's method raised something that is not an Exception, such as SystemExit."""


def call_hook(hook: Callable[[], T]) -> T:
    """Call ``hook``; raise HookEnded in place of anything that is not an Exception.

    SystemExit, or the exception by which pytest ends a test, would silently end a thread of the
    framework. The kubelet would then wait forever for a response.
    """
    try:
        return hook()
    # Unchanged: DeviceRejected and others mean something to the caller.
    except Exception:
        raise
    except BaseException as error:
        raise HookEnded(error_text(error)) from error


def error_text(error: BaseException) -> str:
    """Return the error's type and text: the text alone can be unclear, as with KeyError."""
    if isinstance(error, HookEnded):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
