"""Errors of rehearsals."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

__all__ = ["RehearsalError"]


class RehearsalError(RequestError):
    """Error for a step or a snapshot that cannot be used. The text is one line."""
