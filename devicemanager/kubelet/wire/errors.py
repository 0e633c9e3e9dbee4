"""The error for bytes that a plugin or a checkpoint should not contain."""

from __future__ import annotations

from devicemanager.core.errors import EndpointError

__all__ = ["WireError"]


class WireError(EndpointError):
    """Error of bytes that are not a valid message of the API; its text is one line for the user."""
