"""Errors of rehearsals. A rehearsal predicts what a reboot or an upgrade would do on a node."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

__all__ = ["RehearsalError"]


class RehearsalError(RequestError):
    """Error of an invalid step, or of a snapshot that cannot be used. The message is one line."""
