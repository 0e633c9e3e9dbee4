"""The error for invalid bytes in a plugin's message or in a checkpoint."""

from __future__ import annotations

from devicemanager.core.errors import EndpointError

__all__ = ["WireError"]


class WireError(EndpointError):
    """Error of bytes that are not a valid message of the API; its text is one line for the user."""
