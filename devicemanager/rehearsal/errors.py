"""Errors of rehearsals."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

__all__ = ["RehearsalError"]


class RehearsalError(RequestError):
    """Error of an invalid step, or of a snapshot that cannot be used. The message is one line."""
