"""Errors of rehearsals."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

__all__ = ["RehearsalError"]


class RehearsalError(RequestError):
    """A step is invalid, or the snapshot cannot be used. The message is one line."""
