"""Calling an author's methods, whatever they end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["HookEnded", "call_hook", "error_text"]

T = TypeVar("T")


class HookEnded(Exception):
    """An author's method ended with what is no Exception, such as SystemExit."""


def call_hook(hook: Callable[[], T]) -> T:
    """Call it. What it raises comes as an Exception in any case.

    SystemExit, or the outcome by which pytest ends a test, would end one of our threads
    without a word, and leave the kubelet waiting for an answer for ever.
    """
    try:
        return hook()
    except Exception:
        raise
    except BaseException as error:
        raise HookEnded(error_text(error)) from error


def error_text(error: BaseException) -> str:
    """The error's type and text, since the text of a KeyError, say, is the bare key."""
    if isinstance(error, HookEnded):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
